// Package explain explains in words why a pending job waits and what would help (Why). To find out, it makes plans of changed snapshots.
package explain

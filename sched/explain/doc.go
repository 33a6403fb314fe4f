// Package explain explains in words why a pending job waits and what would help (Why). To find out, it makes plans of changed snapshots.
// The short reasons that squeue shows are in package reason.
package explain

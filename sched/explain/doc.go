// Package explain says in words why a pending job waits and what would help (Why). It tries out changes by asking for plans of a changed
// snapshot.
package explain

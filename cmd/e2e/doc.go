// Package e2e tests the programs end to end: it builds them, starts a cluster for each script of testdata/script, types
// commands, and fails when a script leaves a process, a mount or a cgroup behind. It also runs the examples of the
// README and the demonstration.
package e2e

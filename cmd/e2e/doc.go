// Package e2e tests the programs as users see them: it builds them, starts a cluster for each script of testdata/script, types
// commands, and fails when a script leaves a process, a mount or a cgroup behind. The README's examples and the demonstration
// run here, too.
package e2e

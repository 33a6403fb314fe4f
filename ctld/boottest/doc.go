// Package boottest boots Debian hosts with their own systemd, for tests alone: of unit files, of packages, and of what a service manager
// does to the daemons.
//
// A host is a systemd-nspawn container over the root that .ci/host-root keeps. What it writes goes to memory, in a mount namespace that
// ends with it, and the kernel kills it when the test's process ends: only an empty cgroup can be left. It is booted in about a second.
//
// Hosts are alone, or in a Net: a bridge in a network namespace of its own, to which the machine's network has no way.
//
// hosttest has hosts that start faster and whose cables can be cut, but no service manager, no packages and no file system of their own.
package boottest

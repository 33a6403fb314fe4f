// Package boottest boots Debian hosts with their own systemd, for tests of unit files, packages, and the interaction of daemons and
// service manager.
//
// A host is a systemd-nspawn container on the root file system that .ci/host-root keeps. Its writes go to memory, in a mount
// namespace that ends with it, and the kernel kills it when the test's process ends: only an empty cgroup can be left. It boots in
// about a second.
//
// Hosts are alone, or in a Net: a bridge in a network namespace of its own, which is not connected to the machine's network.
//
// Hosts of package hosttest start faster and have cables that can be cut, but no service manager, packages or file system of their
// own.
package boottest

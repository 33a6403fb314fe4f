// Package hosttest creates clusters of several hosts on one machine, for tests: each host has its own network, mounts, host name,
// process ids, users and boot id, and runs the real daemons, which use TCP.
//
// A host is a set of namespaces that live as long as their first process, which is this test binary (Main) with a pipe from the
// test as standard input. However the test ends, the pipe ends, and with it the first process, every other process of the host, its
// mounts and its network. Nothing of it is in /run/netns, and nothing can be left.
//
// The hosts' cables end in the test: a host's eth0 is a TUN device that this process holds, and Net carries the packets. A cable
// can be cut in one direction, lose packets or be slow without iproute2, nftables or a kernel with sch_netem, and a test can count
// the packets affected by the fault.
//
// Hosts share the machine's file system, except for /etc, /run, /tmp, /var/spool and /proc, which each host has for itself. A
// host's /etc has links to the machine's, apart from the files that the test writes.
package hosttest

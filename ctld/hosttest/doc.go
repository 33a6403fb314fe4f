// Package hosttest makes clusters of several hosts on one machine, for tests alone: each host has its own network, mounts, host name,
// process ids, users and boot id, and runs the real daemons, which talk TCP.
//
// A host is a set of namespaces that live as long as their first process, this very test binary (Main), whose standard input is a pipe from
// the test: however the test ends, the pipe ends, and with it the first process, every other process of the host, its mounts and its
// network. Nothing of it is in /run/netns, and nothing can be left.
//
// The hosts' cables end in the test: a host's eth0 is a TUN device that this process holds, and Net carries the packets. So a cable can be
// cut in one direction, lose packets or be slow without iproute2, nftables or a kernel that has sch_netem, and a test can tell how many
// packets met the fault.
//
// What the hosts share is what a cluster's hosts share, the programs and a file system: all of the machine but /etc, /run, /tmp, /var/spool
// and /proc, which are a host's own. Its /etc has links to the machine's, but for what the test writes into it.
package hosttest

// Package cluster runs a whole cluster on one machine: one controller and several node daemons, for trying things out, for
// tests and for a single shared computer. It is what `sluice up` and `sluice down` do.
//
// Everything of a cluster lies in one folder:
//
//	DIR/cluster.json   what it is, and which processes it consists of
//	DIR/env.sh         what a shell needs to use it
//	DIR/slurm.conf     the configuration, unless the cluster was given one that lies elsewhere
//	DIR/run/ctld.sock  the controller's socket
//	DIR/state          the controller's database and the cluster's authority
//	DIR/tls/NODE       a node's certificate
//	DIR/spool/NODE     a node's jobs
//	DIR/log            one log for each daemon
//
// Daemons are ordinary processes in sessions of their own; the commands that start and stop them do not stay. A process is
// known by its pid, the moment it started and the boot in which it did, so that a pid that was given to somebody else is
// never signalled. Processes that no record names (an earlier command was killed) are found by their command line, which
// holds the folder.
package cluster

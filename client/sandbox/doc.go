// Package sandbox runs a whole cluster on one machine, one controller and several node daemons: for trying things out, for tests,
// and for a single shared computer. It implements `sluice up` and `sluice down`.
//
// A cluster is one directory:
//
//	DIR/cluster.json   its options and processes
//	DIR/env.sh         sets up a shell to use it
//	DIR/slurm.conf     the configuration, or a link to the one that the cluster was given
//	DIR/run/ctld.sock  the controller's socket
//	DIR/state          the controller's database and the cluster's certificate authority
//	DIR/tls/NODE       a node's certificate
//	DIR/spool/NODE     a node's jobs
//	DIR/log            one log for each daemon
//
// The directory must be new or empty, or have a cluster.json. Each name is listed in cluster.json before it is created, and only
// listed names are ever deleted. An Up that fails to create a cluster deletes it again, except for the logs of daemons that ran.
// One that is killed before it has started a daemon leaves a record of that, and the next Up starts over.
//
// Daemons are ordinary processes in sessions of their own; the commands that start and stop them exit. A process is identified by
// its pid, start time and boot, so that a reused pid is never signalled. Processes that no record names (because an earlier command
// was killed) are found by their command line, which contains the directory.
package sandbox

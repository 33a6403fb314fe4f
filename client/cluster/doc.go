// Package cluster runs a whole cluster on one machine: one controller and several node daemons, for trying things out, for
// tests and for a single shared computer. It is what `sluice up` and `sluice down` do.
//
// Everything of a cluster lies in one folder:
//
//	DIR/cluster.json   what it is, and which processes it consists of
//	DIR/env.sh         what a shell needs to use it
//	DIR/slurm.conf     the configuration, or a link to the one that the cluster was given
//	DIR/run/ctld.sock  the controller's socket
//	DIR/state          the controller's database and the cluster's authority
//	DIR/tls/NODE       a node's certificate
//	DIR/spool/NODE     a node's jobs
//	DIR/log            one log for each daemon
//
// The folder is new or empty before: one that is not, and has no cluster.json, is refused. Each name is listed in cluster.json
// before it is made, and only listed names are ever deleted. An Up that makes a cluster and fails deletes it again, but for the
// logs of daemons that ran; one that is killed before it has started a daemon leaves a record that says so, and the next Up,
// whatever it asks for, begins anew.
//
// Daemons are ordinary processes in sessions of their own; the commands that start and stop them do not stay. A process is
// known by its pid, the moment it started and the boot in which it did, so that a pid that was given to somebody else is
// never signalled. Processes that no record names (an earlier command was killed) are found by their command line, which
// holds the folder.
package cluster

// Package index holds the cluster of the last snapshot: nodes, partitions, reservations, licenses and running jobs (Index).
//
// An Index follows snapshots (Follow) and reads only records whose pointer has changed. A pass adds its starts (AddRun) and promises
// (Promise) and removes them when it ends: between passes the index agrees with the snapshot.
//
// Other packages keep their own indexes of its nodes up to date with Node.Version and ChangedSince; facts that depend on node states,
// partitions and reservations are valid for an Epoch.
package index

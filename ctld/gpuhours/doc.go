// Package gpuhours records the use of all GPUs of the cluster over time: how many were allocated and busy, allocated and idle, free or
// down, and how many free ones jobs waited for in vain. `sluice report` shows it; nothing is decided by it.
//
// # How
//
// Look counts the GPUs at one moment, from the View and the newest samples; it is pure. The Recorder looks every ten seconds, weights each
// look by the time since the previous one, adds that up by hours of the clock, and once a minute adds the hours to those on disk. A
// controller that is killed loses at most a minute. The observed part of an hour is recorded with it: an unobserved time is a gap and never
// zero. Nothing of this passes through the writer.
//
// # What counts
//
// Amounts are of physical GPUs: a MIG instance counts as its part of the slices, shards as their part of the GPU's.
//
// A free GPU is lost to fragmentation when a job that waits only for resources (reason Resources or Priority) could have had it: its
// partitions had at least as many free and healthy GPUs, of its type and on its nodes, as it requests, but not where it could use them.
// Either the nodes lacked the CPUs or the memory that go with the GPUs, or the free GPUs were spread over more nodes than the job may have.
// Jobs are taken in the order of their priority, and each takes the GPUs that it would have had: no GPU counts twice, and not more than
// there are free. A job that fits now waits because of the plan (it would delay another job, or is about to start); the GPUs it takes are
// not lost. GPUs of nodes in reservations do not count, nor do jobs that request a reservation or more than GPUs, CPUs, memory, partitions
// and nodes (constraints, switches, licenses): computing fragmentation for them would cost too much.
package gpuhours

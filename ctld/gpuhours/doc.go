// Package gpuhours records the use of all GPUs of the cluster over time: how many were allocated and busy, allocated and
// idle, free or down, and which of the free ones jobs waited for in vain. `sluice report` shows it; nothing is decided
// by it.
//
// # How
//
// Look counts the GPUs at one moment, from the View and the newest samples; it is pure. The Recorder looks every ten
// seconds, counts each moment for the time since the one before, adds that up by hours of the clock, and once a minute
// hands the hours on to be added to those on disk. A controller that is killed loses at most a minute. How much of an
// hour was observed is recorded with it: an unobserved time is a gap and never zero. Nothing of this passes through the
// writer.
//
// # What counts
//
// Amounts are of physical GPUs: a MIG instance counts as its part of the slices, shards as their part of the GPU's.
//
// A free GPU is lost to fragmentation when a job that waits for nothing but resources (reason Resources or Priority)
// could have had it: in its partitions, of its type and of its nodes at least as many GPUs were free and healthy as it
// asks for, but not where the job could use them. Either the nodes lacked the CPUs or the memory that go with the GPUs,
// or the free GPUs were spread over more nodes than the job may have. Jobs are taken in the order of their priority, and
// each takes the GPUs that it would have had: no GPU counts twice, and not more than there are free. A job that fits as
// things are waits because of the plan (it would delay another job, or is about to start); the GPUs it takes are not
// lost. Not counted are GPUs of nodes in reservations, and jobs that ask for a reservation or for more than GPUs, CPUs,
// memory, partitions and nodes (constraints, switches, licenses), because fragmentation cannot be told so cheaply for
// them.
package gpuhours

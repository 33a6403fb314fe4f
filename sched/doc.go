// Package sched decides which pending jobs start, where, and why the others wait. It is a pure function of its input: no clock, no
// goroutine, no I/O.
//
// # The protocol
//
// The caller owns the state. It hands over a record.Snapshot and receives a record.Plan:
//
//	s := sched.New(params)
//	plan := s.Plan(snapshot)
//
// A plan is advice. The caller checks each Start, Preempt and Reason against the state of that moment and drops stale ones; the next
// snapshot shows the result. Nothing has to be undone in the Scheduler: it believes only the snapshot.
//
// # Cheap snapshots
//
// Records (Node, Partition, Job, Run, …) are immutable: a changed record is a new pointer. A Scheduler remembers the pointers of the
// previous snapshot and reads only records whose pointer differs. So the caller may keep slices of pointers, copy them with the few changed
// entries replaced, and hand them over: 100,000 unchanged pointers cost about a tenth of a millisecond. Slices sorted by their key
// (Node.Name, Partition.Name, Job.ID, Run.ID then Run.Task) are fast; unsorted ones give the same plan, slower, because they are sorted
// first. The slices and records must not be written to while Plan runs, nor the records afterwards.
//
// Between passes the Scheduler keeps an index and never a decision: a fresh Scheduler makes the same plan from the same snapshot as one
// that has seen a million others.
//
// # Who owns what
//
//	record     the records of a snapshot and of a plan, and the configuration
//	sizing     the size of a request: in total, on a node, over how many nodes
//	node       one node: its free resources over time, and the share of a job
//	index      the cluster of the last snapshot: nodes, partitions, reservations, licenses, runs
//	placement  nodes for a job: now, later, never
//	queue      the pending jobs, their classes and priorities
//	pass       a plan: starts, promises, preemption, and the reasons of the other jobs
//	explain    why one job waits, in words
//
// Each uses those above it, and each datum is written by its own package; a pass undoes its changes of an index. The Scheduler makes them
// follow a snapshot one after the other, and starts over when more than states has changed. Callers need record for input and output,
// sizing for the size of a request, and placement for whether a request could ever start.
//
// Times are whole seconds since 1970; durations are whole seconds (suffix S); memory is MiB.
package sched

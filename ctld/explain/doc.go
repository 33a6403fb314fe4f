// Package explain explains in words why a job waits or what has become of it: the text of sluice explain. Its statements about nodes and
// the queue come from sched/explain by way of the planner, those about limits from package limit, and those about impossible requests from
// package feasible.
package explain

// Package explain puts into words why a job waits and what has become of one that does not: the text of sluice explain. What it says of
// nodes and the queue comes from sched/explain, in words, by way of the planner; of limits from package limit; of nodes and devices that
// no request can have from package feasible.
package explain

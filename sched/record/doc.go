// Package record declares what the scheduler is told and what it answers: the records of a Snapshot, the Plan, the configuration. It
// has no behaviour but what follows from a record alone: what a request comes to (Count, WorkOut), whom a reservation admits, where an
// instance of a GPU goes (ChooseCut). Package sched passes the names on; the packages below it use these.
//
// Records are immutable once they are part of a snapshot.
package record

// Package record declares the scheduler's input and output: the records of a Snapshot, the Plan, the configuration. Its functions depend on
// one record alone: Reservation.Admits, ChooseCut for an instance of a GPU. Package sched re-exports the names; the packages below it use
// these.
//
// Records are immutable once they are part of a snapshot.
package record

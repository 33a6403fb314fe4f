// Package state is what the controller knows: immutable records of jobs, nodes and partitions in copy-on-write tables, the
// View that readers share, the Tx through which the single writer changes it, and the events that are the only changes there are.
//
// Records are the protobuf messages of proto/sluice/v1 themselves, so that a record can be stored and sent without being
// copied. The rule that makes this safe: a record that a View holds is never written to again. A change clones the record
// (CloneJob, CloneNode), changes the clone and puts it into the Tx. Job specifications are shared between clones and cloned
// only when they change.
//
// Nothing here reads a clock, starts a goroutine or does I/O.
package state

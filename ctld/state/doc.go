// Package state holds the controller's state: immutable records of jobs, nodes and partitions in copy-on-write tables, the View that
// readers share, the Tx through which the single writer changes it, and the events, which are the only changes.
//
// Records are the protobuf messages of proto/sluice/v1, so that a record can be stored and sent without being copied. One rule makes this
// safe: a record in a View is never written to again. A change clones the record (CloneJob, CloneNode), changes the clone and puts it into
// the Tx. Job specifications are shared between clones and cloned only when they change.
//
// Fields that are only displayed (why a job waits, its expected start, a node's load) are in the records but not durable; a batch that
// changes nothing else is not written.
//
// Nothing here reads a clock, starts a goroutine or does I/O.
//
// # Accounts
//
// Accounts, users, associations and QOS are rows beside the jobs (policy.go), so a limit and the jobs that it holds never diverge. They
// form one immutable Policy, because people change them, not jobs. A cluster that defines nothing has the account "root" and the QOS
// "normal" without a row of either, and submission and scheduling look at one nil pointer.
//
// A numeric setting is a row of the table in conf/accounts, and records hold a list of (name, TRES, value): a new limit is a row, not a
// field in five structs. Rejected: a message with a field for each of Slurm's sixty values; maps, whose encoding has no order.
//
// The commits that change jobs count the use of each association and QOS. It is not stored: a start counts it again (usage.go).
package state

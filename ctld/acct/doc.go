// Package acct is the accounting database: jobs and steps for sacct, long after the controller has forgotten them.
//
// # Goal
//
// Every attempt of every acknowledged job is in acct.db, once, as it ended, whatever happens: kill -9, power cut, full disk. The scheduler
// never waits for it, and sacct never shows less than was acknowledged.
//
// # How
//
// The database (SQLite, in StateSaveLocation) is written after the journal. The loop reports the jobs that each commit changed; only their
// ids are kept here, so memory is bounded by the number of jobs, however slow the disk. About once a second the writer takes the newest
// records of these ids from the View and stores them in one transaction: a job that lived for less costs one row.
//
//   - Rows are keyed by job id and number of restarts, and written as upserts: writing one again changes nothing. After
//     any crash the writer begins with every job in the state.
//   - Attempts that have left the state are in the journal's outbox (ctld/state/outbox.go): an attempt that was requeued,
//     and a job that was forgotten (MinJobAge) before it was stored. Its rows are deleted only after SQLite has synced
//     them.
//   - Queries are answered from the View and, for the rest, from the outbox and the database: nothing acknowledged is
//     missing, and no query waits for the writer.
//
// While the database cannot be written (full disk, no permission), the error is logged and writing is retried; jobs stay in the state or
// the outbox. A damaged database is moved to acct.db.bad-TIME, the log says so, and a new one begins with the contents of the state.
//
// # Why SQLite's own log and not the journal's bolt file
//
// Finished jobs are queried by user, time, account and name, and kept for years; bolt has one order of keys. A write-ahead log with
// synchronous=FULL costs one fsync a second here. Rejected: sharing the journal's fsync, because the loop would wait for SQL.
package acct

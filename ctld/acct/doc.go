// Package acct is the accounting database: what became of every job, for sacct, long after the controller has forgotten it.
//
// # Goal
//
// Every attempt of every job that was acknowledged is in acct.db, once, as it ended, whatever happens: kill -9, power cut, a full
// disk. The scheduler never waits for it, and sacct never shows less than what was acknowledged.
//
// # How
//
// The database (SQLite, in StateSaveLocation) is written behind the journal. The loop tells which jobs each commit changed; only
// their ids are kept here, so memory is bounded by the number of jobs, however slow the disk. About once a second the writer takes
// the newest records of these ids from the View and stores them in one transaction: a job that lived for less costs one row write.
//
//   - Rows are keyed by job id and number of restarts, and written as upserts: writing one again changes nothing. So after any
//     crash the writer simply begins with every job that the state holds.
//   - What the state does not hold any more is in the journal's outbox (ctld/state/outbox.go): an attempt that was requeued, and a
//     job that is forgotten (MinJobAge) before it was stored. Its rows are deleted only after SQLite has synced them.
//   - Selections are answered from the View and, for what is not in it, from the outbox and the database: nothing that was
//     acknowledged is missing, and the writer is never waited for.
//
// A database that cannot be written (full disk, no permission) is tried again and again and said in the log; jobs then stay in the
// state or the outbox. One that is damaged is moved aside to acct.db.bad-TIME, said, and begun anew with what the state has.
//
// # Why SQLite's own log and not the journal's bolt file
//
// Finished jobs are asked for by user, time, account and name, and kept for years; bolt has one order of keys. A write-ahead log with
// synchronous=FULL costs one fsync a second here. Sharing the journal's fsync was rejected: the loop would wait for SQL.
package acct

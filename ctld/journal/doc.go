// Package journal keeps the controller's rows on disk.
//
// # Goal
//
// When Commit returns nil the batch is on disk, whatever happens next: kill -9, power cut, full disk. Load returns exactly what was
// committed, or an error that names the damage and the command that repairs it; never anything else.
//
// # Layout
//
// A state directory belongs to one cluster and holds:
//
//	sluice.db          rows, in bbolt: one bolt bucket per Bucket, and one record, the head, rewritten by every commit
//	sluice.lock        flock'ed by the running controller; holds its pid
//	CLUSTER_ID         the cluster's random id, written once: while it exists, a missing or empty database is a fault, not a start
//	ids                the highest job id reserved, the epoch and the generation, two alternating slots written in place
//	backup/*.db        verified copies
//	backup/*.log       the redo log: every batch since the copies (redo.go)
//	sluice.db.bad-*    databases that a restore replaced
//	sluice.db.new      a database under construction
//
// # Invariants
//
//  1. Every value carries a CRC32C over its bucket, its key and itself, so a row cannot be altered or moved unnoticed.
//
//  2. The head carries, per bucket, the number of rows and the sum of their digests, so a row cannot vanish, and an older page
//     cannot take the place of a newer one, unnoticed.
//
//  3. Before bbolt maps the file, this package reads it with pread and checks both meta pages, the length and every reachable page
//     (inspect.go): bbolt trusts its file, and a file shorter than its meta page says kills the process with SIGBUS. Later reads are
//     guarded (guard.go).
//
//  4. Space is taken before it is needed (space.go): the file is extended with written zeros ahead of use, and the last ReserveBytes
//     are left to commits that must not fail, such as the end of a running job. A ballast file beside the database was rejected:
//     once it is deleted, any process on that disk can take its blocks. On a full disk commits may use the free pages of the database
//     (room.go), and the Backuper replaces older backups and the redo log with a small fresh backup (backuper.go) and shrinks the
//     database (shrink.go). Users are refused before the disk is full (Room).
//
//  5. Job ids are reserved in the ids file in strides, before the commit that uses them, so restoring an old backup cannot hand out
//     an id twice (ids.go).
//
//  6. A restore takes the newest sound tree, from the damaged database or a backup, and replays the redo log on it: it ends with the
//     last commit, unless the log is damaged too.
//
//  7. A restore raises the generation, and with it the number of the last commit, so the numbers of commits that were taken back are
//     never reused. A replay of the whole log counts as a restore: nothing proves that the log was whole.
//
// # Why a redo log beside bbolt
//
// Each batch is written twice: to bbolt, and before that to the redo log, which is not synced. bbolt does not need it: after a crash or a
// power cut the database is at its last commit by itself. The log serves restores only: when the database is damaged or gone, a restore
// ends with the last acknowledged batch, not with the last backup. Without the log, up to a backup interval is lost: acknowledged jobs have
// no record, and nodes have to be asked what ran meanwhile; their answers cover starts and ends, not submissions, holds or changes of
// limits. The price is one write of some hundred bytes for each batch, no fsync, and a file that each backup starts anew. Rejected: more
// backups (each is a copy of the database, and the interval remains), and shipping bbolt's pages as they are written (they repeat damage).
//
// # Why both meta pages must be valid
//
// bbolt falls back to the older meta page when the newer one is damaged, and so silently forgets the last commit. The meta record fits one
// disk sector, so a power cut does not tear it: an invalid one is damaged. Open refuses, and Restore prefers the database's own previous
// commit to an older backup.
//
// bbolt syncs twice per commit, pages then meta. With the checks above one sync would be enough, but then a torn commit and a flipped bit
// could not be told apart.
package journal

package acct

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// store is the database file.
type store struct {
	path  string
	write *sql.DB // one connection: the writer's
	read  *sql.DB
	// texts holds the bytes of texts by the user who stored them first, as far as requested since the start. Only for the writer.
	texts map[uint32]int64
}

// errDamaged means that the file is not a sound database.
var errDamaged = errors.New("the accounting database is damaged")

// schemaVersion is PRAGMA user_version. A database with a higher one is left alone.
const schemaVersion = 3

// The columns are those that selections search; everything else about a job is in record, an encoded JobRecord. Times are nanoseconds; the
// end of an attempt that has not ended is the largest integer.
const schema = `
CREATE TABLE jobs (
	key INTEGER PRIMARY KEY,
	array_id INTEGER NOT NULL,
	uid INTEGER NOT NULL,
	submit INTEGER NOT NULL,
	eligible INTEGER NOT NULL,
	start INTEGER NOT NULL,
	end INTEGER NOT NULL,
	state INTEGER NOT NULL,
	name TEXT NOT NULL,
	record BLOB NOT NULL,
	script INTEGER,
	env INTEGER
);
CREATE INDEX jobs_by_array ON jobs (array_id) WHERE array_id != 0;
CREATE TABLE texts (
	id INTEGER PRIMARY KEY,
	hash BLOB NOT NULL UNIQUE,
	data BLOB NOT NULL
);
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
` + indexes + owners

// The indexes contain everything that selects and orders jobs by user, time and state, so only requested records are read. Those of format
// 1 had neither state nor array_id.
const indexes = `
DROP INDEX IF EXISTS jobs_by_user;
DROP INDEX IF EXISTS jobs_by_end;
CREATE INDEX jobs_by_user ON jobs (uid, end, eligible, state, array_id);
CREATE INDEX jobs_by_end ON jobs (end, eligible, state, array_id);
PRAGMA user_version = 2;
`

// A text belongs to the user who stored it first. Those of format 2 had no owner, and are not counted.
const owners = `
ALTER TABLE texts ADD COLUMN uid INTEGER NOT NULL DEFAULT 0;
CREATE INDEX texts_by_user ON texts (uid, length(data));
PRAGMA user_version = 3;
`

// checkedBytes is the size up to which a database is read through when it is opened; a larger one would delay sacct.
const checkedBytes = 32 << 20

// openStore opens or creates the database of a cluster. errDamaged means that it has to be moved aside.
func openStore(path, cluster string) (*store, error) {
	s := &store{path: path}
	if err := s.open(cluster); err != nil {
		s.close()
		return nil, explain(fmt.Errorf("cannot open the accounting database %s: %w", path, err))
	}
	return s, nil
}

func (s *store) open(cluster string) error {
	if f, err := os.OpenFile(s.path, os.O_CREATE|os.O_RDWR, 0o600); err != nil { // SQLite would make it readable for all
		return err
	} else if err := f.Close(); err != nil {
		return err
	}
	const common = "?_pragma=busy_timeout(10000)&_pragma=temp_store(2)"
	var err error
	if s.write, err = sql.Open("sqlite",
		"file:"+s.path+common+
			"&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=cache_size(-2000)&_txlock=immediate"); err != nil {
		return err
	}
	s.write.SetMaxOpenConns(1)
	if s.read, err = sql.Open("sqlite", "file:"+s.path+common+"&_pragma=query_only(1)&_pragma=cache_size(-8000)"); err != nil {
		return err
	}
	s.read.SetMaxOpenConns(8)
	s.read.SetConnMaxIdleTime(time.Minute)
	if err := s.prepare(); err != nil {
		return err
	}
	return s.belongs(cluster)
}

// prepare creates the tables of a new file and checks an old one.
func (s *store) prepare() error {
	var version int
	if err := s.write.QueryRow("PRAGMA user_version").Scan(&version); err != nil {
		return err
	}
	switch {
	case version > schemaVersion:
		return fmt.Errorf("it was written by a newer version (format %d, this version reads up to %d); start that version, or move the "+
			"file away",
			version, schemaVersion)
	case version == 0:
		return s.change(schema + gpuTables + stepTable)
	case version == 1:
		return s.change(indexes + owners + gpuTables + stepTable)
	case version == 2:
		return s.change(owners + gpuTables + stepTable)
	}
	if fi, err := os.Stat(s.path); err == nil && fi.Size() <= checkedBytes {
		var verdict string
		if err := s.write.QueryRow("PRAGMA quick_check(1)").Scan(&verdict); err != nil {
			return err
		}
		if verdict != "ok" {
			return fmt.Errorf("%w: %s", errDamaged, verdict)
		}
	}
	return s.change(gpuTables + stepTable)
}

// change alters the database, all or nothing.
func (s *store) change(statements string) error {
	tx, err := s.write.Begin()
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.Exec(statements); err != nil {
		return err
	}
	return tx.Commit()
}

// belongs refuses the database of another cluster: its job ids mean other jobs.
func (s *store) belongs(cluster string) error {
	var have string
	err := s.write.QueryRow("SELECT value FROM meta WHERE name = 'cluster'").Scan(&have)
	if errors.Is(err, sql.ErrNoRows) {
		_, err = s.write.Exec("INSERT INTO meta VALUES ('cluster', ?)", cluster)
		return err
	}
	if err == nil && have != cluster {
		return fmt.Errorf("%w: it belongs to the cluster with id %s, this is %s", errDamaged, have, cluster)
	}
	return err
}

func (s *store) close() {
	for _, db := range []*sql.DB{s.read, s.write} {
		if db != nil {
			_ = db.Close()
		}
	}
}

// explain returns errDamaged for SQLite's errors about an invalid file.
func explain(err error) error {
	var e *sqlite.Error
	if errors.As(err, &e) {
		switch e.Code() & 0xff {
		case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
			return fmt.Errorf("%w: %w", errDamaged, err)
		}
	}
	return err
}

// moveAside renames an unusable database, with its log, and returns its new name.
func moveAside(path string, now time.Time) (string, error) {
	bad := path + ".bad-" + now.UTC().Format("20060102T150405")
	for i := 1; ; i++ {
		if _, err := os.Lstat(bad); errors.Is(err, fs.ErrNotExist) {
			break
		}
		bad = fmt.Sprintf("%s.bad-%s-%d", path, now.UTC().Format("20060102T150405"), i)
	}
	if err := os.Rename(path, bad); err != nil {
		return "", fmt.Errorf("cannot move the damaged accounting database aside: %w", err)
	}
	for _, tail := range []string{"-wal", "-shm"} {
		if err := os.Rename(path+tail, bad+tail); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("cannot move the damaged accounting database aside: %w", err)
		}
	}
	return bad, nil
}

// row is an attempt with the values that are stored beside its record; nil texts are left unchanged.
type row struct {
	key    int64
	array  uint32
	uid    uint32
	submit int64
	elig   int64
	start  int64
	end    int64
	state  int32
	name   string
	record []byte
	lost   *pb.JobRecord // a node's report on an attempt that a restore has lost: to be merged
	jobTexts
}

const upsert = `INSERT INTO jobs (key, array_id, uid, submit, eligible, start, end, state, name, record, script, env) VALUES (?,?,?,?,?,?,?,?,?,?,?,?)
ON CONFLICT (key) DO UPDATE SET array_id=excluded.array_id, uid=excluded.uid, submit=excluded.submit, eligible=excluded.eligible, start=excluded.start,
end=excluded.end, state=excluded.state, name=excluded.name, record=excluded.record, script=coalesce(excluded.script, script), env=coalesce(excluded.env, env)`

// put stores rows in one transaction: all are on disk when it returns nil, none otherwise. It keeps at most textBytes of texts for each
// user, 0 is no bound; left is the number of texts that were not kept.
func (s *store) put(ctx context.Context, rows []row, textBytes int64) (left int, err error) {
	defer func() {
		if err != nil {
			s.texts = nil // counted before the commit failed
		}
	}()
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }()
	stmt, err := tx.PrepareContext(ctx, upsert)
	if err != nil {
		return 0, err
	}
	defer func() { _ = stmt.Close() }()
	texts := &textWriter{store: s, tx: tx, put: map[*byte]any{}, limit: textBytes}
	for i := range rows {
		r := &rows[i]
		if r.lost != nil {
			if err := r.recall(ctx, tx); err != nil {
				return 0, err
			}
		}
		script, err := texts.once(ctx, r.uid, r.script)
		if err != nil {
			return 0, err
		}
		env, err := texts.once(ctx, r.uid, r.env)
		if err != nil {
			return 0, err
		}
		if _, err := stmt.ExecContext(ctx, r.key, r.array, r.uid, r.submit, r.elig, r.start, r.end, r.state, r.name, r.record, script,
			env); err != nil {
			return 0, err
		}
	}
	return texts.left, tx.Commit()
}

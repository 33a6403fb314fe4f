package acct

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// A database that turns out to be damaged when it is read is said to be so, once; then it has been moved aside, and what the state holds
// is there again.
func TestDamageFoundByReader(t *testing.T) {
	w := newWorld(t, t.TempDir())
	defer func() { w.a.shut() }()
	for range 200 {
		w.submit(1)
	}
	if err := w.a.store(context.Background()); err != nil {
		t.Fatal(err)
	}
	w.crash() // so that the log is in the file
	f, err := os.OpenFile(w.a.path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	fi, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(bytes.Repeat([]byte{0xa5}, int(fi.Size())-8192), 8192); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	err = w.a.Select(context.Background(), &pb.AccountingRequest{SinceNs: 1}, w.loop.View, func([]byte) error { return nil })
	if !errors.Is(err, errDamaged) {
		t.Fatalf("reading a damaged database: %v", err)
	}
	if err := w.a.store(context.Background()); err != nil {
		t.Fatal(err)
	}
	w.check()
	if aside, err := filepath.Glob(w.a.path + ".bad-*"); err != nil || len(aside) == 0 {
		t.Errorf("nothing was moved aside: %v, %v", aside, err)
	}
}

// Without a usable database, jobs are shown from the state with a warning, nothing is lost, and no caller waits.
func TestNoDatabase(t *testing.T) {
	dir := t.TempDir()
	w := newWorld(t, dir)
	defer func() { w.a.shut() }()
	w.a.shut()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	id := w.submit(1)
	w.begin(id)
	w.end(id, 3)
	if err := w.a.store(context.Background()); err == nil {
		t.Fatal("stored without a folder")
	}
	if w.a.Trouble() == "" {
		t.Error("no warning")
	}
	w.check()
	w.now = w.now.Add(time.Hour)
	w.turn(reactor.Tick{Purge: true, Unstored: w.a.Unstored()})
	if w.loop.View().Jobs.Len() != 0 {
		t.Fatal("the job was not forgotten: accounting holds the controller up")
	}
	w.check() // from the outbox
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := w.a.store(context.Background()); err != nil {
		t.Fatal(err)
	}
	if w.a.Trouble() != "" || w.a.waiting() != 0 {
		t.Errorf("still in trouble: %q, %d waiting", w.a.Trouble(), w.a.waiting())
	}
	if b, err := w.a.o.Outbox(state.Attempt{Job: id}); err != nil || b != nil {
		t.Errorf("the outbox still has it: %d bytes, %v", len(b), err)
	}
	w.check()
}

// The database of another cluster is moved aside: its job ids mean other jobs.
func TestAnotherCluster(t *testing.T) {
	dir := t.TempDir()
	s, err := openStore(filepath.Join(dir, File), "another")
	if err != nil {
		t.Fatal(err)
	}
	s.close()
	w := newWorld(t, dir)
	defer func() { w.a.shut() }()
	if aside, err := filepath.Glob(w.a.path + ".bad-*"); err != nil || len(aside) == 0 || w.a.Trouble() != "" {
		t.Errorf("moved aside: %v, %v; trouble %q", aside, err, w.a.Trouble())
	}
}

// A newer version's database is left alone, and said.
func TestNewerDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), File)
	s, err := openStore(path, "c")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.write.Exec("PRAGMA user_version = 99"); err != nil {
		t.Fatal(err)
	}
	s.close()
	if _, err := openStore(path, "c"); err == nil || errors.Is(err, errDamaged) {
		t.Errorf("a newer database: %v", err)
	}
}

// A database of format 1 gets the indexes of today when it is opened, and keeps its jobs.
func TestOlderDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), File)
	s, err := openStore(path, "c")
	if err != nil {
		t.Fatal(err)
	}
	r, err := rowOf(benchJob(0, 1))
	if err == nil {
		_, err = s.put(context.Background(), []row{r}, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.write.Exec(`DROP INDEX texts_by_user; ALTER TABLE texts DROP COLUMN uid; DROP INDEX jobs_by_user; DROP INDEX jobs_by_end; CREATE INDEX jobs_by_user ON jobs (uid, end, eligible);
CREATE INDEX jobs_by_end ON jobs (end, eligible); PRAGMA user_version = 1`); err != nil {
		t.Fatal(err)
	}
	s.close()
	if s, err = openStore(path, "c"); err != nil {
		t.Fatal(err)
	}
	defer s.close()
	var version, columns, jobs int
	if err := s.write.QueryRow("PRAGMA user_version").Scan(&version); err != nil || version != schemaVersion {
		t.Errorf("format %d, %v", version, err)
	}
	for index, want := range map[string]int{"jobs_by_user": 5, "jobs_by_end": 4, "texts_by_user": 2} {
		if err := s.write.QueryRow("SELECT count(*) FROM pragma_index_info(?)", index).Scan(&columns); err != nil || columns != want {
			t.Errorf("%s has %d columns, %v", index, columns, err)
		}
	}
	if err := s.write.QueryRow("SELECT count(*) FROM jobs").Scan(&jobs); err != nil || jobs != 1 {
		t.Errorf("%d jobs, %v", jobs, err)
	}
}

// PurgeJobAfter deletes jobs that ended long ago, and scripts without references. Running jobs and recent ends stay.
func TestPurgeAndScripts(t *testing.T) {
	w := newWorld(t, t.TempDir())
	defer func() { w.a.shut() }()
	w.pol = Policy{Scripts: true, Env: true, Keep: 24 * time.Hour}
	old, kept := w.submit(1), w.submit(1)
	w.begin(old)
	w.end(old, 0)
	if err := w.a.store(context.Background()); err != nil {
		t.Fatal(err)
	}
	script := func(id uint32, env bool) (string, bool) {
		data, uid, found, err := w.a.Script(context.Background(), state.New(config(), "c", 1), id, env)
		if err != nil || found && uid != 1 {
			t.Fatal(uid, err)
		}
		return string(data), found
	}
	if got, found := script(old, false); !found || got != "#!/bin/sh\n# 0\n" {
		t.Errorf("the script is %q", got)
	}
	if got, _ := script(kept, true); got != "A=1\nB=2" {
		t.Errorf("the environment is %q", got)
	}
	texts := func() (n int) {
		if err := w.a.db.Load().read.QueryRow("SELECT count(*) FROM texts").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := texts(); n != 3 { // two scripts, one environment
		t.Errorf("%d texts are stored", n)
	}
	w.now = w.now.Add(25 * time.Hour)
	w.a.purge(context.Background())
	if _, found := script(old, false); found {
		t.Error("the old job is still there")
	}
	if _, found := script(kept, false); !found || texts() != 2 {
		t.Errorf("the job that waits: found %v, %d texts", found, texts())
	}
}

// TestTextsOfAUserAreBounded: jobs that a user submits and cancels leave the state, so accounting must bound the texts that it keeps of
// them.
func TestTextsOfAUserAreBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), File)
	s, err := openStore(path, "c")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { s.close() }()
	put := func(n int, uid uint32, script []byte) (left int) {
		t.Helper()
		j := benchJob(n, 100)
		j.Spec.Uid = uid
		r, err := rowOf(j)
		if err == nil {
			r.script = script
			left, err = s.put(context.Background(), []row{r}, 1<<20)
		}
		if err != nil {
			t.Fatal(err)
		}
		return left
	}
	noise := func(seed byte) []byte {
		b := make([]byte, 300<<10)
		_, _ = rand.NewChaCha8([32]byte{seed}).Read(b)
		return b
	}
	for n, want := range []int{0, 0, 0, 1, 1} { // three of 300 KiB in 1 MiB
		if left := put(n, 7, noise(byte(n))); left != want {
			t.Errorf("text %d: %d were not kept", n, left)
		}
	}
	if put(10, 7, noise(1)) != 0 || put(11, 8, noise(11)) != 0 || put(12, 0, noise(12)) != 0 || put(13, 7, []byte("small")) != 0 {
		t.Error("one that is there, another user's, root's or a small one was not kept")
	}
	s.close()
	if s, err = openStore(path, "c"); err != nil {
		t.Fatal(err)
	}
	if put(14, 7, noise(14)) != 1 {
		t.Error("after a restart it is forgotten what the user has")
	}
	if _, err := s.purge(context.Background(), time.Unix(1<<33, 0)); err != nil {
		t.Fatal(err)
	}
	if put(15, 7, noise(15)) != 0 {
		t.Error("what was purged still counts")
	}
}

// Keys order attempts by job, the first first, and the record that an array began with behind its other tasks; they tell apart every
// run of a job that runs once a minute for thirty years, and are undone.
func TestKeys(t *testing.T) {
	var last int64 = -1
	for _, j := range []*pb.JobRecord{{Id: 1}, {Id: 1, Restarts: 1}, {Id: 1, Restarts: 70000}, {Id: 1, Restarts: 15e6}, {Id: 2},
		{Id: 1 << 31, ArrayJobId: 9}, {Id: 1<<32 - 1},
		{Id: 5, ArrayJobId: 5}, {Id: 5, ArrayJobId: 5, Restarts: 1}, {Id: 1<<32 - 1, ArrayJobId: 1<<32 - 1}} {
		k := key(j)
		if k <= last {
			t.Errorf("job %d, attempt %d, does not come behind the one before", j.Id, j.Restarts)
		}
		if attempt(k) != attemptOf(j) {
			t.Errorf("job %d, attempt %d, becomes %v", j.Id, j.Restarts, attempt(k))
		}
		last = k
	}
}

package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
	"pgregory.net/rapid"
)

// small makes a store that takes little disk, for tests that make many.
var small = Options{ReserveBytes: 64 << 10, StepBytes: 64 << 10, MapBytes: 1 << 20}

func open(t testing.TB, dir string, o Options) *Bolt {
	t.Helper()
	s, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func key(id uint32) []byte { return binary.BigEndian.AppendUint32(nil, id) }

func job(id uint32, value string) Row { return Row{Jobs, key(id), []byte(value)} }

func commit(t testing.TB, s Store, seq uint64, rows ...Row) {
	t.Helper()
	if err := s.Commit(Batch{Seq: seq, Rows: rows}); err != nil {
		t.Fatal(err)
	}
}

// contents is everything that a store holds, as text.
func contents(s Store) (uint64, map[string]string, error) {
	got := map[string]string{}
	seq, err := s.Load(func(b Bucket, key, value []byte) error {
		got[fmt.Sprintf("%v/%x", b, key)] = string(value)
		return nil
	})
	return seq, got, err
}

func mustContents(t testing.TB, s Store) (uint64, map[string]string) {
	t.Helper()
	seq, got, err := contents(s)
	if err != nil {
		t.Fatal(err)
	}
	return seq, got
}

func TestCommitAndLoad(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, small)
	commit(t, s, 1, job(1, "one"), job(2, "two"), Row{Nodes, []byte("n1"), []byte("idle")}, Row{Texts, key(1), []byte("#!/bin/sh\n")})
	commit(t, s, 5, job(1, "one again"), Row{Jobs, key(2), nil}, Row{Jobs, key(77), nil}, Row{Meta, []byte("empty"), []byte{}})
	want := map[string]string{"jobs/00000001": "one again", "nodes/6e31": "idle", "texts/00000001": "#!/bin/sh\n", "meta/656d707479": ""}
	id, epoch := s.ClusterID(), s.Epoch()
	for range 2 {
		seq, got := mustContents(t, s)
		if seq != 5 || !maps.Equal(got, want) {
			t.Fatalf("seq %d, rows %v", seq, got)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, dir, small)
	}
	if s.ClusterID() != id || len(id) != clusterLen {
		t.Errorf("cluster id %q, was %q", s.ClusterID(), id)
	}
	if s.Epoch() != epoch+2 {
		t.Errorf("epoch %d after two more openings, was %d", s.Epoch(), epoch)
	}
	if v, err := s.Get(Jobs, key(1)); string(v) != "one again" || err != nil {
		t.Errorf("got %q, %v", v, err)
	}
	if v, err := s.Get(Jobs, key(2)); v != nil || err != nil {
		t.Errorf("a deleted row: got %q, %v", v, err)
	}
	if v, err := s.Get(Meta, []byte("empty")); v == nil || len(v) != 0 || err != nil {
		t.Errorf("an empty row: got %v, %v", v, err)
	}
}

func TestLaterChangeOfAKeyWins(t *testing.T) {
	for name, s := range map[string]Store{"bolt": open(t, t.TempDir(), small), "memory": NewMemory()} {
		rows := []Row{job(9, "first"), job(3, "x"), {Jobs, key(9), nil}, job(9, "last"), job(3, "y"), {Jobs, key(3), nil}}
		commit(t, s, 1, rows...)
		if _, got := mustContents(t, s); len(got) != 1 || got["jobs/00000009"] != "last" {
			t.Errorf("%s: %v", name, got)
		}
		if string(rows[0].Value) != "first" {
			t.Errorf("%s: the caller's rows were reordered", name)
		}
	}
}

func TestRefusedBatches(t *testing.T) {
	big := make([]byte, MaxValue+1)
	for name, s := range map[string]Store{"bolt": open(t, t.TempDir(), small), "memory": NewMemory()} {
		commit(t, s, 10, job(1, "kept"))
		for what, b := range map[string]Batch{
			"old sequence":   {Seq: 10, Rows: []Row{job(1, "x")}},
			"unknown bucket": {Seq: 11, Rows: []Row{{99, []byte("k"), []byte("v")}}},
			"bucket zero":    {Seq: 11, Rows: []Row{{0, []byte("head"), []byte("v")}}},
			"no key":         {Seq: 11, Rows: []Row{{Jobs, nil, []byte("v")}}},
			"long key":       {Seq: 11, Rows: []Row{{Jobs, big[:MaxKey+1], []byte("v")}}},
			"long value":     {Seq: 11, Rows: []Row{{Jobs, []byte("k"), big}}},
			"too many":       {Seq: 11, Rows: make([]Row, MaxRows+1)},
		} {
			if err := s.Commit(b); !errors.Is(err, ErrBatch) {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
		commit(t, s, 11, job(2, "next"))
		if _, got := mustContents(t, s); got["jobs/00000001"] != "kept" || len(got) != 2 {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestCallbackErrorEndsLoad(t *testing.T) {
	stop := errors.New("stop")
	for name, s := range map[string]Store{"bolt": open(t, t.TempDir(), small), "memory": NewMemory()} {
		commit(t, s, 1, job(1, "a"), job(2, "b"))
		n := 0
		_, err := s.Load(func(Bucket, []byte, []byte) error { n++; return stop })
		if err != stop || n != 1 {
			t.Errorf("%s: %v after %d rows", name, err, n)
		}
		mustContents(t, s)
	}
}

func TestSecondControllerIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, small)
	_, err := Open(dir, small)
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), fmt.Sprintf("pid %d", os.Getpid())) {
		t.Fatalf("got %v", err)
	}
	if _, err := Restore(dir, ""); !errors.Is(err, ErrLocked) {
		t.Errorf("restore under a running controller: %v", err)
	}
	commit(t, s, 1, job(1, "still mine"))
}

func TestClosed(t *testing.T) {
	s := open(t, t.TempDir(), small)
	m := NewMemory()
	for _, st := range []Store{s, m} {
		st.Close()
		_, lerr := st.Load(nil)
		_, gerr := st.Get(Jobs, key(1))
		for _, err := range []error{st.Commit(Batch{Seq: 1}), lerr, gerr, func() error { return st.Close() }()} {
			if err != nil && !errors.Is(err, ErrClosed) {
				t.Errorf("%T: %v", st, err)
			}
		}
	}
	if seq, _ := mustContents(t, m.Reopen()); seq != 0 {
		t.Error("a reopened memory store lost its place")
	}
}

// TestModel runs random batches against a map, Memory and Bolt, with reopening and backups in between.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(memoryDir(), "journal")
		if err != nil {
			rt.Fatal(err)
		}
		defer os.RemoveAll(dir)
		s, err := Open(dir, small)
		if err != nil {
			rt.Fatal(err)
		}
		defer func() { s.Close() }()
		s.db.Load().NoSync = true
		mem, want, seq := NewMemory(), map[string]string{}, uint64(0)
		rt.Repeat(map[string]func(*rapid.T){
			"commit": func(rt *rapid.T) {
				b := genBatch(rt)
				seq += b.Seq
				b.Seq = seq
				for _, r := range b.Rows {
					k := fmt.Sprintf("%v/%x", r.Bucket, r.Key)
					if r.Value == nil {
						delete(want, k)
					} else {
						want[k] = string(r.Value)
					}
				}
				for _, st := range []Store{s, mem} {
					if err := st.Commit(b); err != nil {
						rt.Fatal(err)
					}
				}
			},
			"reopen": func(rt *rapid.T) {
				s.Close()
				if s, err = Open(dir, small); err != nil {
					rt.Fatal(err)
				}
				s.db.Load().NoSync = true
			},
			"": func(rt *rapid.T) {
				for _, st := range []Store{s, mem} {
					got, rows, err := contents(st)
					if err != nil || got != seq || !maps.Equal(rows, want) {
						rt.Fatalf("%T: seq %d (want %d), %v\n got %v\nwant %v", st, got, seq, err, rows, want)
					}
				}
			},
		})
		s.Close()
		if _, err := verify(dbPath(dir), nil); err != nil {
			rt.Fatal(err)
		}
	})
}

// memoryDir is a folder whose syncs cost nothing, where there is one: the model needs many.
func memoryDir() string {
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		return "/dev/shm"
	}
	return ""
}

func genBatch(rt *rapid.T) Batch {
	row := rapid.Custom(func(rt *rapid.T) Row {
		r := Row{Bucket: Bucket(rapid.IntRange(1, int(lastBucket)).Draw(rt, "bucket"))}
		r.Key = key(uint32(rapid.IntRange(1, 40).Draw(rt, "id")))
		if rapid.IntRange(0, 3).Draw(rt, "kind") > 0 {
			r.Value = []byte(strings.Repeat("v", rapid.SampledFrom([]int{0, 1, 100, 2000, 9000}).Draw(rt, "len")) +
				rapid.StringN(0, 3, 9).Draw(rt, "tail"))
		}
		return r
	})
	return Batch{Seq: uint64(rapid.IntRange(1, 3).Draw(rt, "step")), Rows: rapid.SliceOfN(row, 0, 30).Draw(rt, "rows")}
}

func TestIDsAreNeverReused(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, small)
	if s.IDFloor() != 0 {
		t.Fatalf("a new cluster begins above %d", s.IDFloor())
	}
	commit(t, s, 1, job(7, "x"))
	if _, err := s.BackupNow(); err != nil {
		t.Fatal(err)
	}
	commit(t, s, 2, job(41, "x"))
	commit(t, s, 3, Row{Jobs, key(41), nil})
	s.Close()
	s = open(t, dir, small)
	if s.IDFloor() != 41 {
		t.Fatalf("ids begin above %d: 41 was used, and deleted", s.IDFloor())
	}
	got, err := s.ReserveIDs(2500)
	if err != nil || got != 3000 {
		t.Fatalf("got %d, %v", got, err)
	}
	epoch := s.Epoch()
	s.Close()
	if err := os.Truncate(dbPath(dir), 0); err != nil {
		t.Fatal(err)
	}
	r, err := Restore(dir, "")
	if err != nil || r.IDFloor != 3000 || r.Seq != 3 || r.Replayed != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	s = open(t, dir, small)
	if s.IDFloor() != 3000 || s.Epoch() <= epoch {
		t.Errorf("after the restore ids begin above %d, the epoch is %d (was %d)", s.IDFloor(), s.Epoch(), epoch)
	}
}

func TestIDsFileDamaged(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, small)
	commit(t, s, 1, job(7, "x"))
	if _, err := s.BackupNow(); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if err := os.WriteFile(idPath(dir), []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, small) // the database is sound, and knows
	if s.IDFloor() != 7 {
		t.Errorf("ids begin above %d", s.IDFloor())
	}
	s.Close()
	os.Remove(dbPath(dir))
	os.Remove(idPath(dir))
	r, err := Restore(dir, "")
	if err != nil || r.IDFloor < 7+idLeap || len(r.Notes) == 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestIDSlots: one damaged slot leaves the other.
func TestIDSlots(t *testing.T) {
	dir := t.TempDir()
	ids, err := openIDs(dir, &head{})
	if err != nil {
		t.Fatal(err)
	}
	defer ids.f.Close()
	for want := uint32(1000); want <= 5000; want += 1000 {
		if got, err := ids.reserve(want - 1); got != want || err != nil {
			t.Fatalf("got %d, %v", got, err)
		}
	}
	if _, err := ids.f.WriteAt([]byte{0xff}, int64(ids.count%2)*idSlot+17); err != nil {
		t.Fatal(err)
	}
	if m, err := readIDs(dir); m.high != 4000 || err != nil {
		t.Errorf("got %d, %v", m.high, err)
	}
	if got := nextMark(4294967295); got != 4294967295 {
		t.Errorf("the highest id is rounded to %d", got)
	}
}

// TestSchema: a database with values of another version is refused, and left as it is.
func TestSchema(t *testing.T) {
	dir := t.TempDir()
	newer := small
	newer.Schema = 2
	s := open(t, dir, newer)
	commit(t, s, 1, job(1, "a"))
	s.Close()
	before, err := os.ReadFile(dbPath(dir))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, small); !errors.Is(err, ErrNewer) || !strings.Contains(err.Error(), "restore") {
		t.Errorf("got %v", err)
	}
	newer.Schema = 3
	if _, err := Open(dir, newer); err == nil || errors.Is(err, ErrNewer) || !strings.Contains(err.Error(), "its schema is 2") {
		t.Errorf("got %v", err)
	}
	if after, err := os.ReadFile(dbPath(dir)); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the database was changed: %v", err)
	}
}

// TestDowngrade: a bucket that a newer version added does no harm while it is empty. With rows in it, the error is ErrNewer, not damage.
func TestDowngrade(t *testing.T) {
	for _, tc := range []struct {
		name  string
		kinds int // that the head knows beyond ours
		rows  uint64
		want  error
	}{{"empty", 1, 0, nil}, {"in use", 1, 1, ErrNewer}, {"a stranger", 0, 0, ErrDamaged}} {
		dir := t.TempDir()
		s := open(t, dir, small)
		commit(t, s, 1, job(1, "a"))
		h := s.head
		s.Close()
		db, _, err := openBolt(dbPath(dir), 0)
		if err != nil {
			t.Fatal(err)
		}
		err = transact(db, func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucket([]byte("a-later-kind"))
			if err == nil && tc.rows > 0 {
				err = b.Put([]byte("k"), []byte("v"))
			}
			raw := h.encode()
			if tc.kinds > 0 {
				raw[headFixed-1]++
				raw = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(append(raw, byte(lastBucket)+1), tc.rows),
					7*tc.rows)
			}
			stored, _ := seal(0, []byte(headName), raw)
			return errors.Join(err, tx.Bucket([]byte(headName)).Put([]byte(headName), stored))
		})
		if err := errors.Join(err, db.Close()); err != nil {
			t.Fatal(err)
		}
		for range 2 { // it stays so
			s, err = Open(dir, small)
			if !errors.Is(err, tc.want) {
				t.Fatalf("%s: %v, want %v", tc.name, err, tc.want)
			}
			if err != nil {
				break
			}
			if _, got := mustContents(t, s); len(got) != 1 {
				t.Errorf("%s: %v", tc.name, got)
			}
			s.Close()
		}
	}
}

func TestFailing(t *testing.T) {
	for _, tc := range []struct {
		name    string
		plan    Plan
		err     error
		crashed bool
		want    uint64
	}{
		{"before", FailAt(2, ErrNoSpace), ErrNoSpace, false, 1},
		{"crash before", CrashBefore(2), ErrCrashed, true, 1},
		{"crash after", CrashAfter(2), ErrCrashed, true, 2},
		{"disk full", DiskFull(2), ErrNoSpace, false, 1},
	} {
		disk := NewMemory()
		f := NewFailing(disk, tc.plan)
		commit(t, f, 1, job(1, "a"))
		if err := f.Commit(Batch{Seq: 2, Rows: []Row{job(2, "b")}}); !errors.Is(err, tc.err) {
			t.Errorf("%s: %v", tc.name, err)
		}
		if _, err := f.Get(Jobs, key(1)); errors.Is(err, ErrCrashed) != tc.crashed {
			t.Errorf("%s: afterwards %v", tc.name, err)
		}
		if seq, _ := mustContents(t, disk); seq != tc.want {
			t.Errorf("%s: the disk has seq %d, want %d", tc.name, seq, tc.want)
		}
		err := f.Commit(Batch{Seq: 3, Must: true})
		if errors.Is(err, ErrCrashed) != tc.crashed {
			t.Errorf("%s: the next commit: %v", tc.name, err)
		}
	}
}

// Where everybody may write, others could put files in place of the controller's own.
func TestDirectoryThatEverybodyWritesToIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o1777); err != nil {
		t.Fatal(err)
	}
	if s, err := Open(dir, Options{}); err == nil || !strings.Contains(err.Error(), "chmod o-w") {
		t.Errorf("%v %v", s, err)
	}
}

// TestRoomForABackup: the space requested for a backup is no less than the backup takes.
func TestRoomForABackup(t *testing.T) {
	for _, gone := range []uint32{0, 40, 150} { // of 200: the first two are copied page by page
		dir := t.TempDir()
		s := open(t, dir, Options{})
		var rows, less []Row
		for id := uint32(1); id <= 200; id++ {
			rows = append(rows, Row{Texts, key(id), make([]byte, 20_000)})
			if id <= gone {
				less = append(less, Row{Texts, key(id), nil})
			}
		}
		for i, batch := range [][]Row{rows, less, {job(1, "x")}, {job(1, "y")}} {
			if err := s.Commit(Batch{Seq: uint64(i + 1), Rows: batch}); err != nil {
				t.Fatal(err)
			}
		}
		need := s.backupBytes()
		path, err := s.BackupNow()
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if need+1<<20 < info.Size() || gone == 40 && need < info.Size() {
			t.Errorf("without %d of 200: %d bytes are asked for, %d were written", gone, need, info.Size())
		}
		s.Close()
	}
}

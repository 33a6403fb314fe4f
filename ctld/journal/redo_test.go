package journal

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/internal/test/leaktest"
	"pgregory.net/rapid"
)

// TestRestoreLosesNothing: with the redo log a restore ends where the damaged database ended, over restarts and backups.
func TestRestoreLosesNothing(t *testing.T) {
	dir := t.TempDir()
	seq, at := uint64(0), uint64(0) // rows so far, and the number of the last commit: a restore raises that
	var want map[string]string
	next := func(s *Bolt) {
		seq, at = seq+1, at+1
		commit(t, s, at, script(seq).Rows...)
	}
	for range 3 {
		s := open(t, dir, small)
		at, _ = mustContents(t, s)
		for range 2 {
			for range 20 {
				next(s)
			}
			if seq > 20 {
				if _, err := s.BackupNow(); err != nil {
					t.Fatal(err)
				}
				if err := s.RotateBackups(2); err != nil {
					t.Fatal(err)
				}
			}
		}
		for range 5 {
			next(s)
		}
		_, want = mustContents(t, s)
		s.Close()
		if err := os.Truncate(dbPath(dir), 9000); err != nil {
			t.Fatal(err)
		}
		r, err := Restore(dir, "")
		if err != nil || r.Seq != at || r.Replayed != 5 {
			t.Fatalf("%+v, %v; want seq %d", r, err, at)
		}
		if loaded, err := outcome(dir, want); !loaded || err != nil {
			t.Fatal(err)
		}
	}
	// The newest backup damaged as well: the one before and the log of both are as good.
	s := open(t, dir, small)
	at, _ = mustContents(t, s)
	for range 3 {
		for range 4 {
			next(s)
		}
		if _, err := s.BackupNow(); err != nil {
			t.Fatal(err)
		}
		if err := s.RotateBackups(2); err != nil {
			t.Fatal(err)
		}
	}
	_, want = mustContents(t, s)
	s.Close()
	names, _ := backupFiles(dir)
	logs, _ := redoFiles(dir)
	if len(names) != 2 || len(logs) != 2 {
		t.Errorf("left are %v and %v", names, logs)
	}
	flip(t, filepath.Join(backupDir(dir), names[1]), 8192)
	os.Remove(dbPath(dir))
	if r, err := Restore(dir, ""); err != nil || r.Seq != at {
		t.Fatalf("%+v, %v; want seq %d", r, err, at)
	}
	if loaded, err := outcome(dir, want); !loaded || err != nil {
		t.Error(err)
	}
}

// TestRedoAfterKill9: commits that a killed writer acknowledged survive the loss of its database.
func TestRedoAfterKill9(t *testing.T) {
	dir := t.TempDir()
	var restored []Restored
	for round := range 4 {
		acked := writeUntil(t, dir, 9+round*10, func(p *os.Process) { p.Kill() })
		if err := os.Truncate(dbPath(dir), 4096*3); err != nil {
			t.Fatal(err)
		}
		r, err := Restore(dir, "")
		if err != nil || r.Seq < acked {
			t.Fatalf("%d was acknowledged; %+v, %v", acked, r, err)
		}
		restored = append(restored, r)
		checkAcknowledged(t, dir, acked, restored...)
	}
}

// TestDamagedRedo: a damaged record ends the replay; nothing wrong is applied.
func TestDamagedRedo(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, small)
	commit(t, s, 1, job(1, "a"))
	if _, err := s.BackupNow(); err != nil {
		t.Fatal(err)
	}
	for i := uint32(2); i <= 5; i++ {
		commit(t, s, uint64(i), job(i, "x"))
	}
	s.Close()
	logs, _ := redoFiles(dir)
	path := filepath.Join(backupDir(dir), logs[len(logs)-1])
	info, _ := os.Stat(path)
	flip(t, path, info.Size()/2+20) // in the third of four
	os.Truncate(dbPath(dir), 0)
	r, err := Restore(dir, "")
	if err != nil || r.Seq != 3 || r.Replayed != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	if loaded, err := outcome(dir, map[string]string{"jobs/00000001": "a", "jobs/00000002": "x", "jobs/00000003": "x"}); !loaded ||
		err != nil {
		t.Error(err)
	}
}

// TestTimelines: records written before going back to a backup never mix with those after, even if they all are still there.
func TestTimelines(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, small)
	commit(t, s, 1, job(1, "a"))
	first, err := s.BackupNow()
	if err != nil {
		t.Fatal(err)
	}
	for i := uint32(2); i <= 6; i++ {
		commit(t, s, uint64(i), job(i, "old"))
	}
	s.Close()
	logs, _ := redoFiles(dir)
	saved := map[string][]byte{}
	for _, n := range logs {
		saved[n], _ = os.ReadFile(filepath.Join(backupDir(dir), n))
	}
	if _, err := Restore(dir, first); err != nil {
		t.Fatal(err)
	}
	for n, b := range saved {
		os.WriteFile(filepath.Join(backupDir(dir), n), b, 0o600)
	}
	s = open(t, dir, small)
	at, _ := mustContents(t, s) // the number of commits jumps with a restore
	commit(t, s, at+1, job(1001, "new"))
	s.Close()
	os.Remove(dbPath(dir))
	if r, err := Restore(dir, ""); err != nil || r.Seq != at+1 {
		t.Errorf("%+v, %v", r, err)
	}
	if loaded, err := outcome(dir, map[string]string{"jobs/00000001": "a", "jobs/000003e9": "new"}); !loaded || err != nil {
		t.Error(err)
	}
}

// TestRefusedBatchIsNotRestored: a batch refused on a full disk is taken back from the log.
func TestRefusedBatchIsNotRestored(t *testing.T) {
	l := redo{dir: t.TempDir(), limit: 1 << 20}
	if err := l.begin(1, 0); err != nil {
		t.Fatal(err)
	}
	defer l.stop()
	if _, err := l.append(point{0, 0}, Batch{Seq: 1, Rows: []Row{job(1, "kept")}}, 0); err != nil {
		t.Fatal(err)
	}
	undo, err := l.append(point{0, 1}, Batch{Seq: 2, Rows: []Row{job(2, "refused")}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	undo()
	n := 0
	if err := scanSegment(l.f.Name(), func(int64, []byte) error { n++; return nil }); err != nil || n != 1 {
		t.Errorf("%d records, %v", n, err)
	}
}

func TestLongLogAsksForABackup(t *testing.T) {
	defer leaktest.None(t)
	o := small
	o.RedoBytes = 10_000
	s := open(t, t.TempDir(), o)
	defer s.Close()
	ctx, cancel := context.WithCancel(context.Background())
	attempts, ended := make(chan error, 8), make(chan struct{})
	b := &Backuper{Store: s, First: time.Hour, Keep: 2, Done: func(_ string, err error) { attempts <- err }}
	go func() { b.Run(ctx); close(ended) }()
	for i := uint32(1); len(attempts) == 0; i++ {
		commit(t, s, uint64(i), Row{Texts, key(1), bytes.Repeat([]byte("s"), 5000)})
		if i > 10_000 {
			t.Fatal("the log grows for ever")
		}
	}
	if err := <-attempts; err != nil {
		t.Error(err)
	}
	cancel()
	<-ended
}

func TestBackuperRunsOnTime(t *testing.T) {
	defer leaktest.None(t)
	dir := t.TempDir()
	s := open(t, dir, small)
	defer s.Close()
	commit(t, s, 1, job(1, "x"))
	ctx, cancel := context.WithCancel(context.Background())
	done, ended := make(chan error), make(chan struct{})
	b := &Backuper{Store: s, First: time.Millisecond, Every: time.Millisecond, Keep: 2, Done: func(_ string, err error) { done <- err }}
	go func() { b.Run(ctx); close(ended) }()
	for seq := uint64(2); seq < 7; seq++ {
		if err := <-done; err != nil {
			t.Error(err)
		}
		commit(t, s, seq, job(1, "y"))
	}
	cancel()
	for {
		select {
		case <-done:
			continue
		case <-ended:
		}
		break
	}
	if names, _ := backupFiles(dir); len(names) == 0 || len(names) > 2 {
		t.Errorf("backups: %v", names)
	}
}

func TestRecordRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := genBatch(rt)
		b.Seq += 5
		p := encodeRecord(nil, point{3, 5}, b)
		after, got, err := decodeRecord(p[redoHeader:])
		if err != nil || after != (point{3, 5}) || got.Seq != b.Seq || len(got.Rows) != len(b.Rows) {
			rt.Fatal(after, got, err)
		}
		for i, r := range b.Rows {
			g := got.Rows[i]
			if compareRows(g, r) != 0 || !bytes.Equal(g.Value, r.Value) || (g.Value == nil) != (r.Value == nil) {
				rt.Fatalf("row %d: %v, want %v", i, g, r)
			}
		}
	})
}

func FuzzDecodeRecord(f *testing.F) {
	f.Add(encodeRecord(nil, point{1, 2}, script(20))[redoHeader:])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, p []byte) {
		after, b, err := decodeRecord(p)
		if err != nil {
			if !errors.Is(err, errRecord) {
				t.Errorf("unclear: %v", err)
			}
			return
		}
		again, c, err := decodeRecord(encodeRecord(nil, after, b)[redoHeader:])
		if err != nil || again != after || c.Seq != b.Seq || !maps.Equal(asMap(b), asMap(c)) {
			t.Errorf("%v, %v, %v", b, c, err)
		}
	})
}

func asMap(b Batch) map[string]string {
	m := map[string]string{}
	for _, r := range b.Rows {
		m[r.Bucket.String()+string(r.Key)] = string(r.Value)
	}
	return m
}

package journal

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func fileSize(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// TestShrink: where most of a database is free pages, a smaller one with the same rows takes its place, while others commit and read, and
// both its meta pages are good. One that has hardly any is left alone.
func TestShrink(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, small)
	seq := uint64(0)
	next := func(rows ...Row) {
		seq++
		commit(t, s, seq, rows...)
	}
	for id := uint32(1); id <= 40; id++ {
		next(job(id, "kept"), Row{Texts, key(id), make([]byte, 100_000)})
	}
	if done, err := s.Shrink(); done || err != nil {
		t.Fatalf("a full database: %v, %v", done, err)
	}
	was := fileSize(t, dbPath(dir))
	for id := uint32(1); id <= 38; id++ {
		next(Row{Texts, key(id), nil})
	}
	stop := make(chan struct{})
	var others sync.WaitGroup
	others.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				next(job(100+uint32(seq%50), strings.Repeat("x", int(seq%3000))))
			}
		}
	})
	others.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if v, err := s.Get(Jobs, key(7)); string(v) != "kept" || err != nil {
					t.Errorf("while the database shrinks: got %q, %v", v, err)
				}
			}
		}
	})
	done, err := s.Shrink()
	close(stop)
	others.Wait()
	if !done || err != nil {
		t.Fatalf("shrunk: %v, %v", done, err)
	}
	if is := fileSize(t, dbPath(dir)); is > was/2 {
		t.Errorf("the file had %d bytes, has %d", was, is)
	}
	_, want := mustContents(t, s)
	next(job(1, "after"))
	want["jobs/00000001"] = "after"
	if path, err := s.BackupNow(); err != nil {
		t.Error(err)
	} else if _, err := verify(path, nil); err != nil {
		t.Error(err)
	}
	s.Close()
	s = open(t, dir, small)
	if got, rows := mustContents(t, s); got != seq || !maps.Equal(rows, want) {
		t.Errorf("batch %d with %d rows, want %d with %d", got, len(rows), seq, len(want))
	}
}

// TestShrunkHasTwoTrees: right after it has shrunk, a database can do without either meta page, as any other.
func TestShrunkHasTwoTrees(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, small)
	commit(t, s, 1, job(1, "kept"), Row{Texts, key(1), make([]byte, 2_000_000)})
	commit(t, s, 2, Row{Texts, key(1), nil})
	if done, err := s.Shrink(); !done || err != nil {
		t.Fatalf("shrunk: %v, %v", done, err)
	}
	s.Close()
	f, err := os.Open(dbPath(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for page := range int64(2) {
		m, err := metaAt(f, fileSize(t, dbPath(dir)), page*int64(os.Getpagesize()))
		if err != nil {
			t.Fatal(err)
		}
		if h, err := inspect(f, m, nil); err != nil || h.seq != 2 {
			t.Errorf("meta page %d: %v", page, err)
		}
	}
}

// TestKilledWhileShrinking: every acknowledged commit is there, and nothing of the other database is left.
func TestKilledWhileShrinking(t *testing.T) {
	for _, place := range []string{"shrink.copied:2", "shrink.renamed:2"} {
		t.Run(place, func(t *testing.T) {
			dir := t.TempDir()
			checkAcknowledged(t, dir, dieAt(t, dir, place))
			if left, _ := filepath.Glob(dbPath(dir) + ".*"); len(left) > 0 {
				t.Errorf("left are %v", left)
			}
		})
	}
}

// TestRoom: users may store up to a quarter of the disk, less the reserve for ends of jobs. Older backups and the redo log do not count as
// taken. When that quarter is used up, there is still room for a backup.
func TestRoom(t *testing.T) {
	d := newLoopDisk(t, 48)
	dir := filepath.Join(d.mount, "state")
	s := open(t, dir, Options{ReserveBytes: 2 << 20, StepBytes: 2 << 20})
	look := func() int64 {
		s.most.looked = s.most.looked.AddDate(-1, 0, 0)
		return s.Room()
	}
	first, seq := look(), uint64(0)
	if first < 8<<20 || first > 12<<20 {
		t.Errorf("room for %d bytes on an empty disk of 48 MiB", first)
	}
	b := Backuper{Store: s}
	for ; look() > 0; seq++ {
		commit(t, s, seq+1, Row{Texts, key(uint32(seq)), make([]byte, 1<<20)})
		if seq%3 != 0 {
			continue
		}
		if _, err := b.once(); err != nil {
			t.Fatal(err)
		}
	}
	if stored := int64(seq) << 20; stored < first/4*3 || stored > first+1<<20 {
		t.Errorf("%d bytes were stored until there was no room, %d should have been", stored, first)
	}
	if _, err := b.once(); err != nil {
		t.Errorf("no backup: %v", err)
	}
}

// TestCopyWhileOthersCommit: a copy is that of one moment, although pages of the database are used again meanwhile.
func TestCopyWhileOthersCommit(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, small)
	rows := func(seq uint64) (list []Row) {
		for id := range uint32(1000) {
			list = append(list, Row{Texts, key(id), bytes.Repeat([]byte{byte(seq)}, 4000)})
		}
		return list
	}
	commit(t, s, 1, rows(1)...)
	stop := make(chan struct{})
	var others sync.WaitGroup
	others.Go(func() {
		for seq := uint64(2); ; seq++ {
			select {
			case <-stop:
				return
			default:
				commit(t, s, seq, rows(seq)[seq%10*100:][:100]...)
			}
		}
	})
	defer others.Wait()
	defer close(stop)
	for range 20 {
		path := filepath.Join(dir, "copy")
		if err := compact(path, s.db.Load()); err != nil {
			t.Fatal(err)
		}
		if _, err := verify(path, nil); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

package journal

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// filled makes a database with branches, inline buckets, overflowing values and a history, and returns its directory and contents.
func filled(t testing.TB) (dir string, want map[string]string) {
	t.Helper()
	dir = t.TempDir()
	s := open(t, dir, small)
	seq := uint64(0)
	for i := uint32(1); i <= 120; i++ {
		seq++
		rows := []Row{job(i, strings.Repeat(fmt.Sprint("job ", i, " "), 40)), {Texts, key(i), bytes.Repeat([]byte{byte(i)}, 700)}}
		if i%3 == 0 {
			rows = append(rows, Row{Jobs, key(i / 2), nil}, Row{Nodes, []byte(fmt.Sprint("n", i)), []byte("idle")})
		}
		commit(t, s, seq, rows...)
	}
	commit(t, s, seq+1, Row{Texts, key(60), bytes.Repeat([]byte("long "), 9000)})
	_, want = mustContents(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, want
}

// outcome opens a database as a controller does: it must yield exactly want, or say which file is damaged and what to type.
func outcome(dir string, want map[string]string) (loaded bool, err error) {
	s, err := Open(dir, small)
	if err == nil {
		defer s.Close()
		var got map[string]string
		if _, got, err = contents(s); err == nil && !maps.Equal(got, want) {
			return true, fmt.Errorf("WRONG DATA: %d rows, want %d", len(got), len(want))
		}
	}
	if err == nil {
		return true, nil
	}
	if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), dbPath(dir)) || !strings.Contains(err.Error(), "sluice-ctld restore") {
		return false, fmt.Errorf("UNCLEAR ERROR: %w", err)
	}
	return false, nil
}

func TestTruncated(t *testing.T) {
	dir, want := filled(t)
	whole, err := os.ReadFile(dbPath(dir))
	if err != nil {
		t.Fatal(err)
	}
	r, err := verify(dbPath(dir), nil)
	if err != nil {
		t.Fatal(err)
	}
	used := int(r.meta.pages) * int(r.meta.pageSize)
	lengths := []int{0, 1, 79, 80, 81, 4095, 4097, 8191, used - 1}
	for n := 4096; n <= used; n += 4096 {
		lengths = append(lengths, n)
	}
	for _, n := range lengths {
		if err := os.WriteFile(dbPath(dir), whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		loaded, err := outcome(dir, want)
		if err != nil || loaded != (n >= used) {
			t.Errorf("%d of %d bytes: loaded %v, %v", n, used, loaded, err)
		}
	}
}

func TestMissingAndForeign(t *testing.T) {
	dir, want := filled(t)
	whole, _ := os.ReadFile(dbPath(dir))
	id, _ := os.ReadFile(sentinelPath(dir))
	for _, tc := range []struct {
		name string
		do   func()
		says string
	}{
		{"missing", func() { os.Remove(dbPath(dir)) }, "it is missing, but this directory holds the state of cluster " +
			strings.TrimSpace(string(id))},
		{"missing with the sentinel", func() { os.Remove(dbPath(dir)); os.Remove(sentinelPath(dir)) },
			"it is missing, but this directory holds the state of a cluster"},
		{"emptied", func() { os.Truncate(dbPath(dir), 0) }, "it is empty"},
		{"emptied, no sentinel", func() { os.Truncate(dbPath(dir), 0); os.Remove(sentinelPath(dir)) }, "it is empty"},
		{"another file", func() { os.WriteFile(dbPath(dir), bytes.Repeat([]byte("text\n"), 9000), 0o600) }, "both meta pages are damaged"},
		{"sentinel garbled", func() { os.WriteFile(sentinelPath(dir), []byte("zz\n"), 0o600) }, "32 hexadecimal digits"},
		{"another cluster", func() { os.WriteFile(sentinelPath(dir), []byte(strings.Repeat("ab", 16)), 0o600) }, "it belongs to cluster"},
	} {
		tc.do()
		if _, err := Open(dir, small); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", tc.name, err)
		}
		os.WriteFile(dbPath(dir), whole, 0o600)
		os.WriteFile(sentinelPath(dir), id, 0o600)
	}
	os.Remove(sentinelPath(dir))
	if loaded, err := outcome(dir, want); !loaded || err != nil {
		t.Errorf("without the sentinel, but sound: %v", err)
	}
	if got, _ := os.ReadFile(sentinelPath(dir)); !bytes.Equal(got, id) {
		t.Errorf("the sentinel was made anew as %q, was %q", got, id)
	}
}

// TestDamagedRowIsNamed flips a bit in one value.
func TestDamagedRowIsNamed(t *testing.T) {
	dir, _ := filled(t)
	whole, _ := os.ReadFile(dbPath(dir))
	at := -1
	r, err := verify(dbPath(dir), func(b Bucket, k, v []byte) error {
		if b == Jobs && bytes.Equal(k, key(119)) {
			at = 0
		}
		return nil
	})
	if err != nil || at < 0 {
		t.Fatal(err)
	}
	// The value may lie in stale pages too: flip every copy.
	needle := bytes.Repeat([]byte("job 119 "), 40)
	for i := bytes.Index(whole, needle); i >= 0; i = bytes.Index(whole, needle) {
		whole[i+5] ^= 1
	}
	os.WriteFile(dbPath(dir), whole, 0o600)
	_, err = Open(dir, small)
	if err == nil || !strings.Contains(err.Error(), "cannot read job 119: checksum mismatch") || !errors.Is(err, ErrDamaged) {
		t.Errorf("%v (of %d rows)", err, r.head.tally[Jobs].rows)
	}
}

// TestBitFlips flips bits anywhere in the file. The database either loads with the right content or the error explains the damage. Nothing
// crashes.
func TestBitFlips(t *testing.T) {
	dir, want := filled(t)
	whole, err := os.ReadFile(dbPath(dir))
	if err != nil {
		t.Fatal(err)
	}
	r, err := verify(dbPath(dir), nil)
	if err != nil {
		t.Fatal(err)
	}
	pages, size := int(r.meta.pages), int(r.meta.pageSize)
	refused := 0
	rapid.Check(t, func(rt *rapid.T) {
		bad := bytes.Clone(whole)
		for range rapid.IntRange(1, 3).Draw(rt, "flips") {
			at := rapid.IntRange(0, pages-1).Draw(rt, "page") * size
			if rapid.Bool().Draw(rt, "header") { // headers and tables of elements are where the harm is
				at += rapid.IntRange(0, 256).Draw(rt, "offset")
			} else {
				at += rapid.IntRange(0, size-1).Draw(rt, "offset")
			}
			bad[at] ^= 1 << rapid.IntRange(0, 7).Draw(rt, "bit")
		}
		if err := os.WriteFile(dbPath(dir), bad, 0o600); err != nil {
			rt.Fatal(err)
		}
		loaded, err := outcome(dir, want)
		if err != nil {
			rt.Fatal(err)
		}
		if !loaded {
			refused++
		}
	})
	if refused == 0 {
		t.Error("no flip was ever noticed: this test tests nothing")
	}
}

// TestStalePages puts back an older version of each page, as a disk does that lost one write.
func TestStalePages(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, small)
	for i := uint32(1); i <= 40; i++ {
		commit(t, s, uint64(i), job(i, strings.Repeat("v", 500)))
	}
	old, _ := os.ReadFile(dbPath(dir))
	for i := uint32(41); i <= 60; i++ {
		commit(t, s, uint64(i), job(i%30+1, strings.Repeat("w", 500)), Row{Jobs, key(i - 30), nil})
	}
	_, want := mustContents(t, s)
	s.Close()
	whole, _ := os.ReadFile(dbPath(dir))
	differ := 0
	for at := 8192; at+4096 <= min(len(old), len(whole)); at += 4096 {
		if bytes.Equal(old[at:at+4096], whole[at:at+4096]) {
			continue
		}
		differ++
		bad := bytes.Clone(whole)
		copy(bad[at:at+4096], old[at:at+4096])
		os.WriteFile(dbPath(dir), bad, 0o600)
		if _, err := outcome(dir, want); err != nil {
			t.Errorf("page %d as it was: %v", at/4096, err)
		}
	}
	if differ < 5 {
		t.Errorf("only %d pages differ", differ)
	}
}

// TestTruncatedWhileOpen cuts the file under a running store: reads fail, they do not kill the process.
func TestTruncatedWhileOpen(t *testing.T) {
	dir, _ := filled(t)
	s := open(t, dir, small)
	if err := os.Truncate(dbPath(dir), 8192); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(Jobs, key(119)); !errors.Is(err, ErrDamaged) {
		t.Errorf("get: %v", err)
	}
	err := s.Commit(Batch{Seq: 1000, Rows: []Row{job(119, "new")}})
	if err == nil {
		t.Error("a commit on half a file succeeded")
	}
	if err2 := s.Commit(Batch{Seq: 1001}); err2 == nil {
		t.Error("the store went on")
	}
	if _, err := s.Load(func(Bucket, []byte, []byte) error { return nil }); err == nil {
		t.Error("it loads")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := outcome(dir, nil); err != nil {
		t.Error(err)
	}
}

func TestRestore(t *testing.T) {
	dir := t.TempDir()
	o := small
	o.RedoBytes = -1
	s := open(t, dir, o)
	commit(t, s, 1, job(1, "a"))
	first, err := s.BackupNow()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := s.BackupNow(); again != first || err != nil {
		t.Errorf("nothing was committed, yet there is another backup: %s, %v", again, err)
	}
	commit(t, s, 2, job(2, "b"))
	second, err := s.BackupNow()
	if err != nil {
		t.Fatal(err)
	}
	commit(t, s, 3, job(3, "c"))
	s.Close()
	if _, err := Restore(dir, ""); err == nil || !strings.Contains(err.Error(), "it is intact") {
		t.Fatalf("a sound database was replaced: %v", err)
	}
	if err := os.Truncate(dbPath(dir), 20000); err != nil {
		t.Fatal(err)
	}
	flipPages(t, second)
	r, err := Restore(dir, "")
	if err != nil || r.From != first || r.Seq != 1 || len(r.Notes) != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	if info, err := os.Stat(r.BadKeptAs); err != nil || info.Size() != 20000 {
		t.Errorf("the bad database: %v", err)
	}
	s = open(t, dir, o)
	seq, got := mustContents(t, s)
	if _, lost := s.Generation(); len(lost) != 1 || lost[0] != (Span{1, seq}) || len(got) != 1 {
		t.Errorf("seq %d, %v, %v", seq, lost, got)
	}
	commit(t, s, seq+1, job(1001, "after"))
	third, err := s.BackupNow()
	if err != nil || third <= second {
		t.Errorf("a backup after a restore must sort behind the ones before: %s, %v", third, err)
	}
	s.Close()
	flipPages(t, second) // sound again
	if r, err = Restore(dir, filepath.Base(second)); err != nil || r.Seq != 2 {
		t.Errorf("by name: %+v, %v", r, err)
	}
	if _, err = Restore(dir, "nosuch.db"); err == nil {
		t.Error("an unknown file was restored")
	}
	if loaded, err := outcome(dir, map[string]string{"jobs/00000001": "a", "jobs/00000002": "b"}); !loaded || err != nil {
		t.Error(err)
	}
	gone := r
	if err := os.Remove(dbPath(dir)); err != nil { // what was gone back to is what a later restore finds
		t.Fatal(err)
	}
	if r, err = Restore(dir, ""); err != nil || r.Seq != gone.Generation*commitsPerGeneration || r.From <= third {
		t.Errorf("after going back: %+v, %v", r, err)
	}
	if loaded, err := outcome(dir, map[string]string{"jobs/00000001": "a", "jobs/00000002": "b"}); !loaded || err != nil {
		t.Error(err)
	}
}

func flip(t testing.TB, path string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [1]byte
	f.ReadAt(b[:], at)
	b[0] ^= 4
	if _, err := f.WriteAt(b[:], at); err != nil {
		t.Fatal(err)
	}
}

// flipPages changes a bit of every page but the meta pages: which of them are free is left to bbolt's chance.
func flipPages(t testing.TB, path string) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	for page := int64(2); page < info.Size()/4096; page++ {
		flip(t, path, page*4096+20)
	}
}

// TestRestorePrefersTheDatabaseItself: one damaged meta page costs at most the last commit, and no backup is as recent.
func TestRestorePrefersTheDatabaseItself(t *testing.T) {
	for page := range int64(2) {
		dir, want := filled(t)
		flip(t, dbPath(dir), page*4096+30)
		if loaded, err := outcome(dir, want); loaded || err != nil {
			t.Fatalf("page %d: loaded %v, %v", page, loaded, err)
		}
		r, err := Restore(dir, "")
		if err != nil || r.From != dbPath(dir) || r.Seq < 120 {
			t.Fatalf("page %d: %+v, %v", page, r, err)
		}
		s := open(t, dir, small)
		seq, got := mustContents(t, s)
		if seq < 120 || len(got) < len(want) {
			t.Errorf("page %d: seq %d, %d rows of %d", page, seq, len(got), len(want))
		}
		commit(t, s, seq+1, job(9000, "goes on"))
	}
}

// TestGenerations: each restore raises the generation, also one of a copy that an older generation has made, and goes on with numbers of
// commits that no other generation has had.
func TestGenerations(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, small)
	if g, lost := s.Generation(); g != 1 || lost != nil {
		t.Errorf("a new cluster has generation %d, %v", g, lost)
	}
	commit(t, s, 1, job(1, "a"))
	old, err := s.BackupNow()
	if err != nil {
		t.Fatal(err)
	}
	commit(t, s, 2, job(2, "b"))
	s.Close()
	last, lastSeq := uint64(1), uint64(2)
	for range 3 {
		r, err := Restore(dir, old)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // it stays over a restart
			s = open(t, dir, small)
			g, lost := s.Generation()
			since := lost[0].UpTo
			if len(lost) != 1 || lost[0].After != 1 {
				t.Errorf("lost: %v", lost)
			}
			seq, _ := mustContents(t, s)
			if g <= last || g != r.Generation || since <= lastSeq || seq < since {
				t.Errorf("generation %d since %d at %d, after %d at %d; the restore said %d", g, since, seq, last, lastSeq, r.Generation)
			}
			commit(t, s, seq+1, job(uint32(3+seq-since), "c"))
			s.Close()
		}
		last, lastSeq = r.Generation, r.Generation*commitsPerGeneration+2
	}
}

// TestRestoreInTheFirstMinute: no backup was due yet, and yet nothing is lost.
func TestRestoreInTheFirstMinute(t *testing.T) {
	dir, want := filled(t)
	os.Truncate(dbPath(dir), 0)
	if r, err := Restore(dir, ""); err != nil || r.Seq != 121 || r.Replayed != 121 {
		t.Fatalf("%+v, %v", r, err)
	}
	if loaded, err := outcome(dir, want); !loaded || err != nil {
		t.Error(err)
	}
}

func TestNoBackupToRestore(t *testing.T) {
	dir, _ := filled(t)
	os.Truncate(dbPath(dir), 5000)
	os.RemoveAll(backupDir(dir))
	_, err := Restore(dir, "")
	if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "no intact copy among 0 backups") {
		t.Errorf("got %v", err)
	}
}

func TestRotate(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, small)
	var paths []string
	for i := range uint32(5) {
		commit(t, s, uint64(i+1), job(i+1, "x"))
		p, err := s.BackupNow()
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, filepath.Base(p))
	}
	if err := s.RotateBackups(2); err != nil {
		t.Fatal(err)
	}
	if got, _ := backupFiles(dir); fmt.Sprint(got) != fmt.Sprint(paths[3:]) {
		t.Errorf("left %v", got)
	}
	if err := s.RotateBackups(0); err != nil {
		t.Fatal(err)
	}
	if got, _ := backupFiles(dir); len(got) != 1 {
		t.Errorf("the last backup must stay: %v", got)
	}
}

func FuzzInspect(f *testing.F) {
	dir, _ := filled(f)
	whole, err := os.ReadFile(dbPath(dir))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint32(8192), []byte{1, 2, 3})
	f.Add(uint32(8192+8), []byte{0xff, 0xff})
	f.Add(uint32(12), []byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, at uint32, with []byte) {
		bad := bytes.Clone(whole)
		copy(bad[int(at)%len(bad):], with)
		r := bytes.NewReader(bad)
		m, _, err := readMetas(r, int64(len(bad)), false)
		if err == nil {
			_, _ = inspect(r, m, nil)
		}
	})
}

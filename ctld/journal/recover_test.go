package journal

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// noise is a value that does not compress.
func noise(n int) []byte {
	rng := rand.New(rand.NewPCG(uint64(n), 5))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// filler commits large scripts until the disk takes no more, and returns how many it took.
func filler(t *testing.T, s *Bolt, seq *uint64) (scripts uint32) {
	t.Helper()
	value := noise(200 << 10)
	for {
		*seq++
		scripts++
		err := s.Commit(Batch{Seq: *seq, Rows: []Row{job(scripts, "r"), {Texts, key(scripts), value}}})
		if errors.Is(err, ErrNoSpace) {
			*seq--
			return scripts - 1
		}
		if err != nil || scripts > 2000 {
			t.Fatal(scripts, err)
		}
	}
}

// TestRecoversFromAFullDisk: the database, its redo log and its backups have filled the disk by themselves. When what is in the database is
// deleted, that frees no byte of the disk, and yet everything goes on: in the free pages of the database at once, and with a small fresh
// backup in place of the old ones and the redo log when there has been one.
func TestRecoversFromAFullDisk(t *testing.T) {
	for _, backedUp := range []bool{false, true} {
		t.Run(fmt.Sprint("backups before=", backedUp), func(t *testing.T) {
			d := newLoopDisk(t, 96)
			dir := filepath.Join(d.mount, "state")
			s := open(t, dir, Options{ReserveBytes: 2 << 20, StepBytes: 2 << 20})
			seq := uint64(1)
			commit(t, s, seq, job(1_000_000, "held"))
			if backedUp { // a large one, of what is gone soon
				for id := range uint32(80) {
					seq++
					commit(t, s, seq, Row{Texts, key(500 + id), noise(100 << 10)})
				}
				if _, err := s.BackupNow(); err != nil {
					t.Fatal(err)
				}
			}
			n := filler(t, s, &seq)
			for id := uint32(1); id <= n; id++ { // everything is cancelled and forgotten
				seq++
				if err := s.Commit(Batch{Seq: seq, Must: true, Rows: []Row{{Jobs, key(id), nil}, {Texts, key(id), nil}}}); err != nil {
					t.Fatalf("forgetting job %d of %d: %v", id, n, err)
				}
			}
			seq++
			if err := s.Commit(Batch{Seq: seq, Rows: []Row{job(5000, "at once"), {Texts, key(5000), noise(100 << 10)}}}); err != nil {
				t.Errorf("most of the database is free, and yet: %v", err)
			}
			before := free(t, dir)
			done, ended := make(chan error, 8), make(chan struct{})
			ctx, cancel := context.WithCancel(context.Background())
			b := &Backuper{Store: s, First: time.Hour, Done: func(_ string, err error) { done <- err }}
			go func() { b.Run(ctx); close(ended) }() // it was asked to by the refusal
			err := <-done
			cancel()
			<-ended
			if err != nil {
				t.Fatal(err)
			}
			if after := free(t, dir); after < before+20<<20 {
				t.Errorf("%d MiB are free, %d before the backup", after>>20, before>>20)
			}
			names, _ := backupFiles(dir)
			logs, _ := redoFiles(dir)
			if len(names) != 1 || len(logs) != 1 {
				t.Errorf("backups %v, logs %v", names, logs)
			}
			seq++
			commit(t, s, seq, job(6000, "after"))
			_, want := mustContents(t, s)
			s.Close()
			if err := os.Truncate(dbPath(dir), 5000); err != nil {
				t.Fatal(err)
			}
			if _, err := Restore(dir, ""); err != nil {
				t.Fatal(err)
			}
			if _, got := mustContents(t, open(t, dir, Options{ReserveBytes: 2 << 20, StepBytes: 2 << 20})); len(got) != len(want) ||
				got["jobs/"+fmt.Sprintf("%08x", 6000)] != "after" {
				t.Errorf("%d rows after a restore, want %d", len(got), len(want))
			}
		})
	}
}

// free returns the free space on the disk of dir.
func free(t *testing.T, dir string) int64 {
	t.Helper()
	n, err := available(dir)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestBackupsHaveAShareOfTheDisk: large ones are fewer than Keep says.
func TestBackupsHaveAShareOfTheDisk(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, small)
	commit(t, s, 1, job(1, "x"))
	if _, err := s.BackupNow(); err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range 6 { // sparse, and only their lengths count
		name := fmt.Sprintf(backupFormat, 900+i, i, "20260101T000000Z")
		names = append(names, name)
		path := filepath.Join(backupDir(dir), name)
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 100<<20)); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.withinShare(names, 24); n != 24 {
		t.Errorf("six of 100 MiB are within eight times the newest: %d", n)
	}
	if err := os.Truncate(filepath.Join(backupDir(dir), names[5]), 10<<20); err != nil {
		t.Fatal(err)
	}
	if err := s.RotateBackups(24); err != nil { // 10 + 100 + 100 MiB of 256
		t.Fatal(err)
	}
	if left, _ := backupFiles(dir); fmt.Sprint(left) != fmt.Sprint(names[3:]) {
		t.Errorf("left %v", left)
	}
	if err := os.Truncate(filepath.Join(backupDir(dir), names[4]), 1<<40); err != nil {
		t.Fatal(err)
	}
	if err := s.RotateBackups(24); err != nil {
		t.Fatal(err)
	}
	if left, _ := backupFiles(dir); fmt.Sprint(left) != fmt.Sprint(names[5:]) {
		t.Errorf("left %v", left)
	}
}

// TestBackupInTime: before the disk is full, while there is still room for it, the redo log asks for the backup that makes it short.
func TestBackupInTime(t *testing.T) {
	d := newLoopDisk(t, 96)
	dir := filepath.Join(d.mount, "state")
	s := open(t, dir, Options{ReserveBytes: 1 << 20, StepBytes: 1 << 20})
	seq := uint64(0)
	for len(s.wanted) == 0 {
		seq++
		if err := s.Commit(Batch{Seq: seq, Rows: []Row{{Texts, key(1), noise(1 << 20)}}}); err != nil {
			t.Fatalf("batch %d: %v", seq, err)
		}
	}
	if _, err := s.BackupNow(); err != nil {
		t.Fatal(err)
	}
	if err := s.RotateBackups(1); err != nil {
		t.Fatal(err)
	}
	if n := free(t, dir); n < 60<<20 {
		t.Errorf("%d MiB are free", n>>20)
	}
}

// TestNoInodes: where no file can be made any more, commits go on, and a backup is made with what an older one gives back.
func TestNoInodes(t *testing.T) {
	d := newLoopDisk(t, 16)
	dir := filepath.Join(d.mount, "state")
	o := Options{ReserveBytes: 256 << 10, StepBytes: 256 << 10}
	s := open(t, dir, o)
	commit(t, s, 1, job(1, "x"))
	n := 0
	for {
		f, err := os.Create(filepath.Join(d.mount, fmt.Sprint("inode", n)))
		if errors.Is(err, syscall.ENOSPC) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		n++
	}
	for seq := uint64(2); seq < 50; seq++ {
		commit(t, s, seq, job(uint32(seq), "y"))
	}
	b := &Backuper{Store: s}
	var got error
	b.Done = func(_ string, err error) { got = err }
	if roomy, _ := b.once(); roomy || got != nil {
		t.Errorf("a backup without inodes: %v, %v", roomy, got)
	}
	s.Close()
	s = open(t, dir, o)
	if _, rows := mustContents(t, s); len(rows) != 49 {
		t.Errorf("%d rows", len(rows))
	}
	for i := range n {
		if err := os.Remove(filepath.Join(d.mount, fmt.Sprint("inode", i))); err != nil {
			t.Fatal(err)
		}
	}
	b.Store = s
	if roomy, _ := b.once(); !roomy || got != nil {
		t.Errorf("with inodes again: %v, %v", roomy, got)
	}
}

// TestReadOnlyDisk: a file system that the kernel has made read-only ends the store with the reason, and what was acknowledged is there.
func TestReadOnlyDisk(t *testing.T) {
	d := newLoopDisk(t, 32)
	dir := filepath.Join(d.mount, "state")
	s := open(t, dir, Options{ReserveBytes: 1 << 20, StepBytes: 1 << 20})
	commit(t, s, 1, job(1, "x"))
	out, err := exec.Command("findmnt", "-n", "-o", "SOURCE", d.mount).Output()
	if err != nil {
		t.Skipf("findmnt: %v", err)
	}
	trigger := filepath.Join("/sys/fs/ext4", filepath.Base(strings.TrimSpace(string(out))), "trigger_fs_error")
	if err := exec.Command("mount", "-o", "remount,errors=remount-ro", d.mount).Run(); err != nil {
		t.Skipf("remount: %v", err)
	}
	if err := os.WriteFile(trigger, []byte("1"), 0); err != nil {
		t.Skipf("this kernel cannot be told to find a fault in a file system: %v", err)
	}
	err = nil
	seq := uint64(1)
	for ; err == nil; seq++ {
		if seq > 1000 {
			t.Fatal("it goes on without a disk")
		}
		err = s.Commit(Batch{Seq: seq + 1, Rows: []Row{job(uint32(seq+1), "y"), {Texts, key(uint32(seq + 1)), noise(100 << 10)}}})
	}
	if errors.Is(err, ErrNoSpace) || errors.Is(err, ErrBatch) || !(strings.Contains(err.Error(), syscall.EROFS.Error()) ||
		strings.Contains(err.Error(), syscall.EIO.Error())) {
		t.Errorf("it ends with %v", err)
	}
	if again := s.Commit(Batch{Seq: seq + 1, Rows: []Row{job(9, "z")}}); again == nil || errors.Is(again, ErrNoSpace) {
		t.Errorf("and then %v", again)
	}
	s.Close()
	_ = exec.Command("umount", "-l", d.mount).Run() // a store that broke keeps its mapping
	d.remount(t)
	if _, rows := mustContents(t, open(t, dir, Options{ReserveBytes: 1 << 20, StepBytes: 1 << 20})); len(rows) < int(seq-1) {
		t.Errorf("%d rows of %d batches that were acknowledged", len(rows), seq-1)
	}
}

package journal

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/sluice-hpc/sluice/internal/test/leaktest"
)

// childEnv makes the test binary a writer on the directory it names, until it is killed.
const childEnv = "SLUICE_JOURNAL_WRITER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		os.Exit(writer(dir))
	}
	leaktest.Main(m)
}

// script is the content of the writer's batch n; it depends on n alone.
func script(n uint64) Batch {
	rng := rand.New(rand.NewPCG(n, 7))
	id := uint32(n)
	b := Batch{Seq: n, Rows: []Row{job(id, strings.Repeat(fmt.Sprint(n, " "), 1+rng.IntN(300))),
		{Texts, key(id), make([]byte, rng.IntN(9000))}}}
	if n > 10 {
		b.Rows = append(b.Rows, job(uint32(1+rng.Uint64N(n-1)), fmt.Sprint("changed by ", n)),
			Row{Texts, key(uint32(1 + rng.Uint64N(n-1))), nil})
	}
	if n%60 == 0 { // nearly all scripts go, and leave most of the database free
		for old := n - 60; old < n; old++ {
			b.Rows = append(b.Rows, Row{Texts, key(uint32(old)), nil})
		}
	}
	return b
}

// writer commits one batch after another and says each number once it is acknowledged.
func writer(dir string) int {
	s, err := Open(dir, small)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	seq, _, err := contents(s)
	for ; err == nil; seq++ {
		if err = s.Commit(script(seq + 1)); err == nil {
			_, err = os.Stdout.WriteString(strconv.FormatUint(seq+1, 10) + "\n")
		}
		if err == nil && seq%20 == 0 {
			_, err = s.Shrink()
		}
		if err == nil && seq%20 == 0 {
			_, err = s.BackupNow()
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 2
}

// writeUntil runs a writer until it has acknowledged n batches, then does harm, and returns the last number acknowledged.
func writeUntil(t *testing.T, dir string, n int, harm func(*os.Process)) uint64 {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	last, sc := uint64(0), bufio.NewScanner(out)
	for i := 0; sc.Scan(); i++ {
		if last, err = strconv.ParseUint(sc.Text(), 10, 64); err != nil {
			t.Error(err)
		}
		if i == n {
			harm(cmd.Process)
		}
	}
	_ = cmd.Wait()
	if last == 0 {
		t.Fatalf("the writer did nothing: %s", stderr.String())
	}
	return last
}

// dieAt runs a writer that dies at a failpoint, and returns the last number acknowledged.
func dieAt(t *testing.T, dir, place string) uint64 {
	t.Helper()
	t.Setenv("SLUICE_FAILPOINT", place)
	return writeUntil(t, dir, 1000, func(p *os.Process) {
		t.Errorf("the writer never comes to %s", place)
		p.Kill()
	})
}

// checkAcknowledged opens dir and compares it with what the writer's batches make. Each restore leaves a gap in their numbers.
func checkAcknowledged(t *testing.T, dir string, acked uint64, restored ...Restored) {
	t.Helper()
	s, err := Open(dir, small)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	seq, got := mustContents(t, s)
	if seq < acked {
		t.Errorf("%d was acknowledged, the database ends with %d", acked, seq)
	}
	m := NewMemory()
	for n, k := uint64(1), uint64(1); n <= seq; n, k = n+1, k+1 {
		for _, r := range restored {
			if n == r.Seq+1 {
				n = r.Generation*commitsPerGeneration + 1
			}
		}
		if n <= seq {
			commit(t, m, k, script(n).Rows...)
		}
	}
	if _, want := mustContents(t, m); !maps.Equal(got, want) {
		t.Errorf("after batch %d the database has %d rows, want %d", seq, len(got), len(want))
	}
	if s.IDFloor() < uint32(acked) {
		t.Errorf("job %d was acknowledged, ids begin above %d", acked, s.IDFloor())
	}
}

func TestKill9(t *testing.T) {
	dir := t.TempDir()
	for round := range 8 {
		acked := writeUntil(t, dir, 5+round*7, func(p *os.Process) { p.Kill() })
		checkAcknowledged(t, dir, acked)
	}
	names, err := backupFiles(dir)
	if err != nil || len(names) == 0 {
		t.Fatalf("no backups: %v", err)
	}
	for _, n := range names {
		if _, err := verify(filepath.Join(backupDir(dir), n), nil); err != nil {
			t.Errorf("backup %s: %v", n, err)
		}
	}
}

// loopDisk is an ext4 filesystem of its own, in a file.
type loopDisk struct{ image, mount string }

func newLoopDisk(t *testing.T, mib int64) *loopDisk {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting a filesystem needs root")
	}
	if _, err := exec.LookPath("mkfs.ext4"); err != nil {
		t.Skip("no mkfs.ext4 (package e2fsprogs)")
	}
	d := &loopDisk{filepath.Join(t.TempDir(), "image"), filepath.Join(t.TempDir(), "mnt")}
	if err := os.WriteFile(d.image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Truncate(d.image, mib<<20), os.Mkdir(d.mount, 0o700)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", "-m", "0", d.image).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v: %s", err, out)
	}
	if out, err := exec.Command("mount", "-o", "loop", d.image, d.mount).CombinedOutput(); err != nil {
		t.Skipf("this machine cannot mount a loop device: %v: %s", err, out)
	}
	t.Cleanup(func() { d.unmount(t) })
	return d
}

func (d *loopDisk) unmount(t *testing.T) {
	t.Helper()
	if out, err := exec.Command("umount", d.mount).CombinedOutput(); err != nil && !strings.Contains(string(out), "not mounted") {
		t.Errorf("umount: %v: %s", err, out)
		_ = exec.Command("umount", "-l", d.mount).Run()
	}
}

// cutPower stops the filesystem at once: nothing that is not on the disk gets there any more (EXT4_IOC_SHUTDOWN, no log flush).
func (d *loopDisk) cutPower(t *testing.T) {
	t.Helper()
	f, err := os.Open(d.mount)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	flag := uint32(2)
	if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), 0x8004587d, uintptr(unsafe.Pointer(&flag))); e != 0 {
		t.Skipf("this kernel cannot shut down an ext4 filesystem: %v", e)
	}
}

// remount mounts what the disk had when its power was cut. It mounts a copy: as long as some process of this machine has a mount
// namespace that it made meanwhile, the file system that was shut down is still mounted there, and would be mounted again as it is.
func (d *loopDisk) remount(t *testing.T) {
	t.Helper()
	d.unmount(t)
	after := d.image + "'"
	if out, err := exec.Command("cp", "--sparse=always", d.image, after).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v: %s", err, out)
	}
	d.image = after
	if out, err := exec.Command("mount", "-o", "loop", d.image, d.mount).CombinedOutput(); err != nil {
		t.Fatalf("mount after the power cut: %v: %s", err, out)
	}
}

// fill takes every byte that is left.
func (d *loopDisk) fill(t *testing.T) (empty func()) {
	t.Helper()
	path := filepath.Join(d.mount, "hog")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size >= 512; size /= 2 {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
	}
	if err := f.Sync(); err != nil && !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
	}
}

func TestPowerCut(t *testing.T) {
	d := newLoopDisk(t, 64)
	dir := filepath.Join(d.mount, "state")
	for round := range 5 {
		acked := writeUntil(t, dir, 3+round*13, func(p *os.Process) { d.cutPower(t); p.Kill() })
		d.remount(t)
		checkAcknowledged(t, dir, acked)
	}
}

// TestPowerCutWithoutKill lets the writer see its disk vanish.
func TestPowerCutWithoutKill(t *testing.T) {
	d := newLoopDisk(t, 64)
	dir := filepath.Join(d.mount, "state")
	acked := writeUntil(t, dir, 40, func(p *os.Process) {
		d.cutPower(t)
		time.AfterFunc(10*time.Minute, func() { p.Kill() }) // it must end by itself, long before
	})
	d.remount(t)
	checkAcknowledged(t, dir, acked)
}

func TestFullDisk(t *testing.T) {
	d := newLoopDisk(t, 32)
	dir := filepath.Join(d.mount, "state")
	o := Options{ReserveBytes: 2 << 20, StepBytes: 2 << 20}
	s := open(t, dir, o)
	seq := uint64(0)
	next := func(must bool, rows ...Row) error {
		seq++
		return s.Commit(Batch{Seq: seq, Rows: rows, Must: must})
	}
	for id := uint32(1); id <= 200; id++ {
		if err := next(false, job(id, strings.Repeat("r", 2000)), Row{Texts, key(id), make([]byte, 3000)}); err != nil {
			t.Fatal(err)
		}
	}
	empty := d.fill(t)
	id, err := uint32(200), error(nil)
	for err == nil { // what was taken ahead may still be used
		id++
		if err = next(false, job(id, strings.Repeat("r", 2000))); err == nil && id > 3000 {
			t.Fatal("submissions go on for ever on a full disk")
		}
	}
	if !errors.Is(err, ErrNoSpace) || !strings.Contains(err.Error(), "no space left") {
		t.Fatalf("got %v", err)
	}
	if _, err := s.BackupNow(); !errors.Is(err, ErrNoSpace) {
		t.Errorf("a backup on a full disk: %v", err)
	}
	for i := uint32(1); i <= 200; i++ { // every running job ends
		if err := next(true, job(i, strings.Repeat("e", 2200))); err != nil {
			t.Fatalf("the end of job %d on a full disk: %v", i, err)
		}
		if err := next(false, job(id+i, "x"), Row{Texts, key(id + i), make([]byte, 1<<20)}); !errors.Is(err, ErrNoSpace) {
			t.Fatalf("a submission: %v", err)
		}
	}
	if _, err := s.ReserveIDs(50_000); err != nil {
		t.Errorf("reserving ids on a full disk: %v", err)
	}
	s.Close()
	s = open(t, dir, o) // a restart meanwhile
	_, got := mustContents(t, s)
	if len(got) != int(id)-1+200 || got["jobs/00000001"] != strings.Repeat("e", 2200) {
		t.Errorf("%d rows after the restart, want %d", len(got), int(id)-1+200)
	}
	if err := next(true, Row{Jobs, key(1), nil}); err != nil {
		t.Errorf("after the restart: %v", err)
	}
	exhaustReserve(t, s, &seq)
	empty()
	if err := next(false, job(id+500, "room again"), Row{Texts, key(id + 500), make([]byte, 1<<20)}); err != nil {
		t.Errorf("with room again: %v", err)
	}
	seqGot, _ := mustContents(t, s)
	s.Close()
	if r, err := verify(dbPath(dir), nil); err != nil || r.head.seq != seqGot {
		t.Error(err)
	}
}

// exhaustReserve commits Must batches until even those find no room: still a clean refusal.
func exhaustReserve(t *testing.T, s *Bolt, seq *uint64) {
	t.Helper()
	_, before := mustContents(t, s)
	for i := range 400 {
		*seq++
		err := s.Commit(Batch{Seq: *seq, Must: true, Rows: []Row{{Finished, key(uint32(i)), make([]byte, 100_000)}}})
		if err == nil {
			continue
		}
		if !errors.Is(err, ErrNoSpace) {
			t.Fatalf("got %v", err)
		}
		_, after := mustContents(t, s)
		if len(after) != len(before)+i {
			t.Errorf("%d rows, want %d", len(after), len(before)+i)
		}
		return
	}
	t.Fatal("the reserve is endless")
}

// BenchmarkCommit measures batches of 2 KiB rows; sync is the disk's own limit, two fdatasyncs of one page each.
func BenchmarkCommit(b *testing.B) {
	for _, rows := range []int{1, 64, 512} {
		b.Run(fmt.Sprint("rows=", rows), func(b *testing.B) {
			s := open(b, b.TempDir(), Options{})
			value := make([]byte, 2<<10)
			id := uint32(0)
			b.ResetTimer()
			for i := range b.N {
				batch := Batch{Seq: uint64(i + 1)}
				for range rows {
					id++
					batch.Rows = append(batch.Rows, Row{Jobs, key(id), value})
				}
				if err := s.Commit(batch); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
			b.ReportMetric(float64(b.N*rows)/b.Elapsed().Seconds(), "rows/s")
		})
	}
	b.Run("sync", func(b *testing.B) {
		f, err := os.Create(filepath.Join(b.TempDir(), "f"))
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		page := make([]byte, 4096)
		if _, err := f.Write(make([]byte, 1<<20)); err != nil {
			b.Fatal(err)
		}
		b.ResetTimer()
		for i := range b.N {
			for _, at := range []int64{int64(2+i%200) * 4096, int64(i%2) * 4096} {
				if _, err := f.WriteAt(page, at); err != nil {
					b.Fatal(err)
				}
				if err := fdatasync(f); err != nil {
					b.Fatal(err)
				}
			}
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
	})
}

// BenchmarkLoad measures a start with 10,000 jobs of 2 KiB and their scripts of 4 KiB.
func BenchmarkLoad(b *testing.B) {
	dir := b.TempDir()
	s := open(b, dir, Options{})
	for i := uint32(0); i < 10_000; i += 500 {
		batch := Batch{Seq: uint64(i + 1)}
		for id := i + 1; id <= i+500; id++ {
			batch.Rows = append(batch.Rows, Row{Jobs, key(id), make([]byte, 2<<10)}, Row{Texts, key(id), make([]byte, 4<<10)})
		}
		if err := s.Commit(batch); err != nil {
			b.Fatal(err)
		}
	}
	s.Close()
	for b.Loop() {
		s, err := Open(dir, Options{})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.Load(func(Bucket, []byte, []byte) error { return nil }); err != nil {
			b.Fatal(err)
		}
		s.Close()
	}
}

// BenchmarkBackup measures a verified backup of a database of 64 MiB.
func BenchmarkBackup(b *testing.B) {
	s := open(b, b.TempDir(), Options{})
	for i := range uint64(64) {
		commit(b, s, i+1, Row{Texts, key(uint32(i)), make([]byte, 1<<20)})
	}
	b.ResetTimer()
	for b.Loop() {
		if n, err := s.Backup(io.Discard); err != nil || n < 64<<20 {
			b.Fatal(n, err)
		}
	}
}

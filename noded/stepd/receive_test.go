package stepd

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/s2"
	"golang.org/x/sys/unix"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/proto/stepwire"
)

// usersFolder is one that the user of steps may write to.
func usersFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "sluice-receive-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

// content is something to copy, and what is sent of it.
func content(t *testing.T, n int) (data, sent []byte) {
	t.Helper()
	data = make([]byte, n)
	if _, err := rand.Read(data); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	return data, append(bytes.Clone(data), sum[:]...)
}

// copying begins a step that copies.
func copying(t *testing.T, f *pb.StepFile) *aStep {
	t.Helper()
	work := &pb.StepWork{Dir: "/", Umask: 0o022, InTask: stepwire.All, Receive: f}
	s := beginStep(t, stepBundle(1), work)
	s.Await("its task", func() bool { return s.Started != nil })
	return s
}

// feed sends in frames. A task that has ended meanwhile may have closed the connection.
func (s *aStep) feed(b []byte) {
	for len(b) > 0 {
		k := min(len(b), stepwire.MaxPayload)
		if _, err := s.Conn.Write(stepwire.Append(nil, stepwire.In, 0, stepwire.All, b[:k])); err != nil {
			return
		}
		b = b[k:]
	}
}

// only fails unless these are the files of a folder.
func only(t *testing.T, dir string, names ...string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range list {
		got = append(got, e.Name())
	}
	if fmt.Sprint(got) != fmt.Sprint(names) {
		t.Errorf("files %q, expected %q", got, names)
	}
}

// TestReceive: a file is in place, whole and the user's, or what was there is as it was.
func TestReceive(t *testing.T) {
	data, sent := content(t, 3<<20+17)
	broken := bytes.Clone(sent)
	broken[1000] ^= 1
	var packed bytes.Buffer
	w := s2.NewWriter(&packed)
	_, _ = w.Write(sent)
	_ = w.Close()
	torn := bytes.Clone(packed.Bytes())
	torn[len(torn)/2] ^= 1
	size := uint64(len(data))
	when := time.Date(2020, 1, 2, 3, 4, 5, 6000, time.UTC)
	for name, c := range map[string]struct {
		file   *pb.StepFile
		sent   []byte
		before string // what is there before; "" = nothing
		status syscall.Errno
		mode   os.FileMode
	}{
		"a new one":           {&pb.StepFile{Size: size, Mode: 0o100777}, sent, "", 0, 0o777},
		"one that exists":     {&pb.StepFile{Size: size, Mode: 0o755}, sent, "old", unix.EEXIST, 0o640},
		"with force":          {&pb.StepFile{Size: size, Mode: 0o755, Force: true}, sent, "old", 0, 0o755},
		"times":               {&pb.StepFile{Size: size, Mode: 0o740, Preserve: true, MtimeNs: when.UnixNano()}, sent, "", 0, 0o740},
		"another checksum":    {&pb.StepFile{Size: size, Mode: 0o755, Force: true}, broken, "old", unix.EBADMSG, 0o640},
		"too short":           {&pb.StepFile{Size: size, Mode: 0o755, Force: true}, sent[:len(sent)-1], "old", unix.ECONNABORTED, 0o640},
		"compressed":          {&pb.StepFile{Size: size, Mode: 0o700, Compressed: true}, packed.Bytes(), "", 0, 0o700},
		"compressed and torn": {&pb.StepFile{Size: size, Mode: 0o700, Compressed: true}, torn, "", unix.EBADMSG, 0},
		"compressed and cut":  {&pb.StepFile{Size: size, Mode: 0o700, Compressed: true}, packed.Bytes()[:5000], "", unix.ECONNABORTED, 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := usersFolder(t)
			c.file.Path = filepath.Join(dir, "file")
			if c.before != "" {
				if err := os.WriteFile(c.file.Path, []byte(c.before), 0o640); err != nil {
					t.Fatal(err)
				}
			}
			s := copying(t, c.file)
			go func() {
				s.feed(c.sent)
				_, _ = s.Conn.Write(stepwire.Append(nil, stepwire.In, 0, stepwire.All, nil))
			}()
			if rec := s.end(); rec.Verdict != "exited" || rec.WaitStatus != uint32(c.status)<<8 {
				t.Errorf("%v, expected %v; it says %q", rec, c.status, s.Text("err 0"))
			}
			want := data
			if c.status != 0 {
				want = []byte(c.before)
			}
			if c.mode == 0 {
				only(t, dir)
				return
			}
			only(t, dir, "file")
			got, err := os.ReadFile(c.file.Path)
			info, serr := os.Stat(c.file.Path)
			if err != nil || serr != nil || !bytes.Equal(got, want) || info.Mode().Perm() != c.mode {
				t.Errorf("%v %v, %d bytes, %v", err, serr, len(got), info.Mode())
			}
			uid := info.Sys().(*syscall.Stat_t).Uid
			if b := stepBundle(1); c.status == 0 && uid != b.Uid {
				t.Errorf("it is uid %d's, and the step uid %d's", uid, b.Uid)
			}
			if c.file.Preserve && !info.ModTime().Equal(when) {
				t.Errorf("it is of %v", info.ModTime())
			}
		})
	}
}

// TestReceiveAsTheUser: root's folders are closed to it, and it follows no link that is in the file's place.
func TestReceiveAsTheUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root has folders that are closed to the user of a step: run the test as root")
	}
	_, sent := content(t, 10)
	closed := usersFolder(t)
	if err := os.Chmod(closed, 0o755); err != nil {
		t.Fatal(err)
	}
	s := copying(t, &pb.StepFile{Path: filepath.Join(closed, "file"), Size: 10, Mode: 0o644})
	s.feed(sent)
	if rec := s.end(); rec.WaitStatus != uint32(unix.EACCES)<<8 {
		t.Errorf("%v", rec)
	}
	only(t, closed)
	open := usersFolder(t)
	if err := os.Symlink(filepath.Join(closed, "aim"), filepath.Join(open, "file")); err != nil {
		t.Fatal(err)
	}
	s = copying(t, &pb.StepFile{Path: filepath.Join(open, "file"), Size: 10, Mode: 0o644, Force: true})
	s.feed(sent)
	if rec := s.end(); rec.WaitStatus != 0 {
		t.Errorf("%v, it says %q", rec, s.Text("err 0"))
	}
	if info, err := os.Lstat(filepath.Join(open, "file")); err != nil || !info.Mode().IsRegular() { // the link led nowhere
		t.Error(info, err)
	}
	only(t, closed)
	aim := filepath.Join(closed, "aim")
	if err := errors.Join(os.WriteFile(aim, []byte("root's"), 0o644), os.Symlink(aim, filepath.Join(open, "link"))); err != nil {
		t.Fatal(err)
	}
	s = copying(t, &pb.StepFile{Path: filepath.Join(open, "link"), Size: 10, Mode: 0o644, Force: true})
	s.feed(sent)
	if rec := s.end(); rec.WaitStatus != uint32(unix.EACCES)<<8 {
		t.Errorf("%v", rec)
	}
	if b, err := os.ReadFile(aim); err != nil || string(b) != "root's" {
		t.Error(string(b), err)
	}
}

// TestReceiveIsEnded: whatever ends it, nothing is left.
func TestReceiveIsEnded(t *testing.T) {
	_, sent := content(t, 1<<20)
	for name, end := range map[string]func(*aStep){
		"scancel":        func(s *aStep) { s.order(&pb.StepOrder{Want: pb.StepWant_WANT_STOP}) },
		"SIGKILL":        func(s *aStep) { s.order(&pb.StepOrder{Want: pb.StepWant_WANT_KILL}) },
		"the connection": func(s *aStep) { s.Conn.NetConn().Close() },
	} {
		t.Run(name, func(t *testing.T) {
			dir := usersFolder(t)
			s := copying(t, &pb.StepFile{Path: filepath.Join(dir, "file"), Size: 1 << 20, Mode: 0o644})
			s.feed(sent[:500_000])
			end(s)
			if rec := s.end(); rec.Verdict == "exited" && rec.WaitStatus == 0 {
				t.Errorf("%v", rec)
			}
			only(t, dir)
		})
	}
}

// TestReceiveByNode: names that differ by node, and a folder that is made.
func TestReceiveByNode(t *testing.T) {
	data, sent := content(t, 1000)
	dir := usersFolder(t)
	s := copying(t, &pb.StepFile{Path: filepath.Join(dir, "made", "file"), Size: 1000, Mode: 0o755, ByNode: true, Folder: true})
	s.feed(sent)
	if rec := s.end(); rec.WaitStatus != 0 {
		t.Errorf("%v, it says %q", rec, s.Text("err 0"))
	}
	if got, err := os.ReadFile(filepath.Join(dir, "made", "file_n1")); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if info, err := os.Stat(filepath.Join(dir, "made")); err != nil || info.Mode().Perm() != 0o700 {
		t.Error(info, err)
	}
}

// TestNamedArrival: where a file system has no files without names, the same holds.
func TestNamedArrival(t *testing.T) {
	data, sent := content(t, 100_000)
	for name, c := range map[string]struct {
		sent   []byte
		force  bool
		before string
		want   syscall.Errno
	}{
		"a new one":        {sent, false, "", 0},
		"one that exists":  {sent, false, "old", unix.EEXIST},
		"with force":       {sent, true, "old", 0},
		"another checksum": {append([]byte{data[0] ^ 1}, sent[1:]...), true, "old", unix.EBADMSG},
		"too short":        {sent[:5], false, "", unix.ECONNABORTED},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "file")
			if c.before != "" {
				if err := os.WriteFile(path, []byte(c.before), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			a := &arrival{StepFile: &pb.StepFile{Path: path, Size: uint64(len(data)), Mode: 0o644, Force: c.force, Preserve: true}}
			a.name = a.hidden()
			err := a.take(bytes.NewReader(c.sent))
			if err == nil && c.want != 0 || err != nil && errnoOf(err) != int(c.want) {
				t.Errorf("%v, expected %v", err, c.want)
			}
			want := data
			if c.want != 0 {
				want = []byte(c.before)
			}
			if len(want) == 0 {
				only(t, dir)
				return
			}
			only(t, dir, "file")
			if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		})
	}
}

// TestFullDisk: that there is no room is said with its errno, and nothing is left.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a file system that is full soon: run the test as root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k,mode=777"); err != nil {
		t.Skipf("cannot mount a tmpfs (%v): run the test where root has CAP_SYS_ADMIN", err)
	}
	defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	data, sent := content(t, 1<<20)
	a := &arrival{StepFile: &pb.StepFile{Path: filepath.Join(dir, "file"), Size: uint64(len(data)), Mode: 0o644}}
	if err := a.take(bytes.NewReader(sent)); errnoOf(err) != int(unix.ENOSPC) {
		t.Errorf("%v", err)
	}
	only(t, dir)
}

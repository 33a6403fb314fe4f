package crashtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// What a FUSE server is asked (linux/fuse.h).
const (
	fuseLookup     = 1
	fuseForget     = 2
	fuseGetattr    = 3
	fuseSetattr    = 4
	fuseOpen       = 14
	fuseRead       = 15
	fuseWrite      = 16
	fuseStatfs     = 17
	fuseRelease    = 18
	fuseFsync      = 20
	fuseFlush      = 25
	fuseInit       = 26
	fuseOpendir    = 27
	fuseReleasedir = 29
	fuseAccess     = 34
	fuseCreate     = 35
	fuseInterrupt  = 36
	fuseForgets    = 42
)

const (
	fuseRoot    = 1
	fuseHeader  = 40
	fuseNoFlush = 1 << 5 // an open file's: close(2) asks nothing
	fuseSize    = 1 << 3 // of setattr
	// fuseParallel: one that waits in a folder does not hold up others there.
	fuseParallel = 1 << 18
)

// server is a file system with one folder whose server, here, answers, answers with an error, or does not answer. A process that waits for
// an answer to a request that the server has read cannot be killed.
type server struct {
	t     *testing.T
	dir   string
	dev   *os.File
	abort string // the kernel's file that ends the connection
	uid   uint32
	ended chan struct{}

	mu    sync.Mutex
	files []*fuseFile // by number, from fuseRoot on
	rules []fuseRule
	held  []string // the names of those that were asked for and got no answer
}

type fuseFile struct {
	name string
	mode uint32
	data []byte
}

// fuseRule is how the server deals with what is asked of a file.
type fuseRule struct {
	op    uint32
	name  string
	errno unix.Errno // 0: no answer
}

// fuseRequest is one question.
type fuseRequest struct {
	op     uint32
	unique uint64
	node   uint64
	body   []byte
}

// newServer mounts a file system whose files belong to a user.
func newServer(c *cluster, name string, u *user) *server {
	c.t.Helper()
	s := &server{t: c.t, dir: filepath.Join(c.dir, name), uid: uint32(u.uid), ended: make(chan struct{})}
	s.files = []*fuseFile{nil, {mode: unix.S_IFDIR | 0o777}}
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		c.t.Skipf("this machine has no FUSE: /dev/fuse: %v", err)
	}
	must(c.t, os.Mkdir(s.dir, 0o755))
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions", fd)
	if err := unix.Mount("sluice-test", s.dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		unix.Close(fd)
		c.t.Skipf("this machine cannot mount a FUSE file system: %v", err)
	}
	must(c.t, unix.SetNonblock(fd, true)) // so that the read below ends when the file is closed
	s.dev = os.NewFile(uintptr(fd), "/dev/fuse")
	s.abort = connection(c.t, s.dir)
	go s.serve()
	c.t.Cleanup(s.close)
	return s
}

// connection finds the kernel's file for the server of a mount, without asking the server: the number is the minor one of its device.
func connection(t *testing.T, dir string) string {
	t.Helper()
	for line := range strings.Lines(readFile(t, "/proc/self/mountinfo")) {
		if f := strings.Fields(line); len(f) > 4 && f[4] == dir {
			_, minor, _ := strings.Cut(f[2], ":")
			return filepath.Join("/sys/fs/fuse/connections", minor, "abort")
		}
	}
	t.Fatalf("%s is not mounted", dir)
	return ""
}

// kill ends the connection: whoever waits for an answer gets an error.
func (s *server) kill() {
	err := os.WriteFile(s.abort, []byte("1"), 0)
	if errors.Is(err, fs.ErrNotExist) { // nothing is mounted there
		err = s.dev.Close()
	}
	if err != nil && !errors.Is(err, os.ErrClosed) {
		s.t.Error(err)
	}
	<-s.ended
}

// close: nobody uses the file system any more.
func (s *server) close() {
	s.kill()
	_ = s.dev.Close()
	(&disk{s.t, "", s.dir}).unmount()
}

// file is a file of the user's, or a folder when the mode says so.
func (s *server) file(name, text string, mode uint32) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if mode&unix.S_IFMT == 0 {
		mode |= unix.S_IFREG
	}
	s.files = append(s.files, &fuseFile{name: name, mode: mode, data: []byte(text)})
	return filepath.Join(s.dir, name)
}

func (s *server) rule(r ...fuseRule) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = append(s.rules, r...)
}

// holds reports whether somebody waits for an answer about a file.
func (s *server) holds(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.held {
		if h == name {
			return true
		}
	}
	return false
}

// serve ends with the connection.
func (s *server) serve() {
	defer close(s.ended)
	buf := make([]byte, 1<<20)
	for {
		n, err := s.dev.Read(buf)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINTR) { // the one who asked has gone meanwhile
			continue
		}
		if err != nil || n < fuseHeader {
			return
		}
		e := binary.NativeEndian
		q := &fuseRequest{op: e.Uint32(buf[4:]), unique: e.Uint64(buf[8:]), node: e.Uint64(buf[16:]), body: buf[fuseHeader:n]}
		switch q.op {
		case fuseForget, fuseForgets, fuseInterrupt:
			continue
		}
		if answer, errno, ok := s.answer(q); ok {
			out := e.AppendUint32(nil, uint32(16+len(answer)))
			out = e.AppendUint32(out, uint32(-int32(errno)))
			_, _ = s.dev.Write(append(e.AppendUint64(out, q.unique), answer...)) // who asked may have been killed
		}
	}
}

func (q *fuseRequest) text(at int) string {
	name, _, _ := bytes.Cut(q.body[min(at, len(q.body)):], []byte{0})
	return string(name)
}

// answer is false when there is to be none.
func (s *server) answer(q *fuseRequest) (answer []byte, errno unix.Errno, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := ""
	switch {
	case q.op == fuseLookup:
		name = q.text(0)
	case q.op == fuseCreate:
		name = q.text(16)
	case q.node < uint64(len(s.files)) && q.node > 0:
		name = s.files[q.node].name
	}
	for _, r := range s.rules {
		if r.op != q.op || r.name != name {
			continue
		}
		if r.errno == 0 {
			s.held = append(s.held, name)
		}
		return nil, r.errno, r.errno != 0
	}
	answer, errno = s.do(q, name)
	return answer, errno, true
}

func (s *server) do(q *fuseRequest, name string) ([]byte, unix.Errno) {
	e := binary.NativeEndian
	switch q.op {
	case fuseInit:
		out := make([]byte, 64)
		e.PutUint32(out, 7)
		e.PutUint32(out[4:], 31)
		e.PutUint32(out[12:], fuseParallel)
		e.PutUint32(out[20:], 64<<10) // max_write
		return out, 0
	case fuseLookup:
		for i, f := range s.files {
			if f != nil && i > fuseRoot && f.name == name {
				return s.entry(i), 0
			}
		}
		return nil, unix.ENOENT
	case fuseCreate:
		s.files = append(s.files, &fuseFile{name: name, mode: unix.S_IFREG | e.Uint32(q.body[4:])&0o777})
		return append(s.entry(len(s.files)-1), s.opened(name)...), 0
	case fuseStatfs:
		return make([]byte, 80), 0
	case fuseOpendir, fuseReleasedir, fuseRelease, fuseFlush, fuseFsync, fuseAccess:
		return make([]byte, map[uint32]int{fuseOpendir: 16}[q.op]), 0
	}
	if q.node >= uint64(len(s.files)) || q.node == 0 {
		return nil, unix.ENOSYS
	}
	f := s.files[q.node]
	switch q.op {
	case fuseSetattr:
		if e.Uint32(q.body)&fuseSize != 0 {
			f.data = append(make([]byte, 0, 64), f.data[:min(uint64(len(f.data)), e.Uint64(q.body[16:]))]...)
		}
		return append(make([]byte, 16), s.attr(int(q.node))...), 0
	case fuseGetattr:
		return append(make([]byte, 16), s.attr(int(q.node))...), 0
	case fuseOpen:
		return s.opened(name), 0
	case fuseRead:
		from := min(uint64(len(f.data)), e.Uint64(q.body[8:]))
		return f.data[from:min(uint64(len(f.data)), from+uint64(e.Uint32(q.body[16:])))], 0
	case fuseWrite:
		n := e.Uint32(q.body[16:])
		f.data = append(f.data[:min(uint64(len(f.data)), e.Uint64(q.body[8:]))], q.body[40:40+n]...)
		return e.AppendUint32(e.AppendUint32(nil, n), 0), 0
	}
	return nil, unix.ENOSYS
}

// opened is an open file. Only one that has a rule for it asks when it is closed: the kernel would wait there until all is written.
func (s *server) opened(name string) []byte {
	out := make([]byte, 16)
	for _, r := range s.rules {
		if r.op == fuseFlush && r.name == name {
			return out
		}
	}
	binary.NativeEndian.PutUint32(out[8:], fuseNoFlush)
	return out
}

// entry and attr are struct fuse_entry_out and fuse_attr. The kernel may keep nothing: it asks each time.
func (s *server) entry(i int) []byte {
	out := make([]byte, 40)
	binary.NativeEndian.PutUint64(out, uint64(i))
	return append(out, s.attr(i)...)
}

func (s *server) attr(i int) []byte {
	e, f, out := binary.NativeEndian, s.files[i], make([]byte, 88)
	e.PutUint64(out, uint64(i))
	e.PutUint64(out[8:], uint64(len(f.data)))
	e.PutUint32(out[60:], f.mode)
	e.PutUint32(out[64:], 1)
	e.PutUint32(out[68:], s.uid)
	e.PutUint32(out[72:], s.uid)
	e.PutUint32(out[80:], 4096)
	return out
}

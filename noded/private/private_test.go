package private

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/internal/inherit"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestEmpty leaves something of each kind in namespaces of its own.
func TestEmpty(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes namespaces")
	}
	p := &pb.Privacy{Dirs: []string{Shm}, Ipc: true}
	if _, whys := Available(p, t.TempDir()); len(whys) > 0 {
		t.Skipf("not possible here: %v", whys)
	}
	call := func(nr uintptr, a, b, c uintptr) error {
		if _, _, e := syscall.Syscall6(nr, a, b, c, 0, 0, 0); e != 0 {
			return e
		}
		return nil
	}
	const key, create = 0x51ce, 0o1600 // IPC_CREAT
	name := []byte("queue\x00")
	for what, leave := range map[string]func() error{
		"nothing":       func() error { return nil },
		"a file":        func() error { return os.WriteFile(Shm+"/x", nil, 0o600) },
		"shared memory": func() error { return call(unix.SYS_SHMGET, key, 4096, create) },
		"a semaphore":   func() error { return call(unix.SYS_SEMGET, key, 1, create) },
		"a queue":       func() error { return call(unix.SYS_MSGGET, key, create, 0) },
		"a POSIX queue": func() error { // a small one: what a user has of them is limited
			attr := [8]int64{0, 1, 8}
			fd, _, e := syscall.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(&name[0])), unix.O_CREAT|unix.O_RDWR, 0o600,
				uintptr(unsafe.Pointer(&attr)), 0, 0)
			if e != 0 {
				return e
			}
			return unix.Close(int(fd))
		},
	} {
		err := inherit.OnThread(func() error {
			room, err := Enter(p, "")
			if err != nil {
				return err
			}
			defer room.Close()
			if !room.Empty() {
				t.Errorf("%s: new namespaces are not empty", what)
			}
			if err := leave(); err != nil {
				return err
			}
			if got := room.Empty(); got != (what == "nothing") {
				t.Errorf("after %s was left: empty is %v", what, got)
			}
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestAvailable: what cannot be had is left out, and told.
func TestAvailable(t *testing.T) {
	if os.Geteuid() != 0 {
		p, whys := Available(&pb.Privacy{Dirs: []string{Shm}, Ipc: true, NoNewPrivs: true}, t.TempDir())
		if len(p.Dirs) > 0 || p.Ipc || !p.NoNewPrivs || len(whys) != 2 {
			t.Errorf("as an ordinary user: %v, %v", p, whys)
		}
		return
	}
	dir := t.TempDir()
	spool, base := filepath.Join(dir, "spool"), filepath.Join(dir, "private")
	file := filepath.Join(dir, "file")
	for _, err := range []error{os.Mkdir(spool, 0o755), os.Mkdir(base, 0o755), os.WriteFile(file, nil, 0o644)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	open := filepath.Join(dir, "open")
	if err := os.Mkdir(open, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		base string
		dirs []string
		make bool
		want string
	}{
		{base, []string{spool}, false, "jobs share " + spool + ": it contains the spool directory"},
		{base, []string{dir}, false, "with the jobs' scripts"},
		{base, []string{"/etc"}, false, "only a world-writable directory"},
		{base, []string{"/no/such"}, false, "it is not a directory on this node"},
		{base, []string{file}, false, "it is not a directory on this node"},
		{dir + "/missing", []string{"/var/tmp"}, false, "AutoBasePath=true makes it"},
		{open, []string{"/var/tmp"}, false, "is writable by everybody"},
	} {
		p, whys := Available(&pb.Privacy{Base: c.base + "/n1", Dirs: c.dirs, MakeBase: c.make}, spool)
		if len(whys) != 1 || !strings.Contains(whys[0].Error(), c.want) || len(p.Dirs) > 0 {
			t.Errorf("%+v: %v, %v", c, p, whys)
		}
	}
	if memory, err := os.MkdirTemp(Shm, "sluice-test"); err == nil {
		defer os.RemoveAll(memory)
		p, whys := Available(&pb.Privacy{Dirs: []string{Shm}}, memory)
		if len(whys) != 1 || !strings.Contains(whys[0].Error(), "with the jobs' scripts") || len(p.Dirs) > 0 {
			t.Errorf("a spool in %s: %v, %v", Shm, p, whys)
		}
	}
	want := []string{"/var/tmp", Shm}
	p, whys := Available(&pb.Privacy{Base: dir + "/made/n1", Dirs: want, MakeBase: true}, spool)
	if len(whys) > 0 && strings.Contains(whys[0].Error(), "namespace") {
		t.Skipf("not possible here: %v", whys)
	}
	info, err := os.Stat(dir + "/made/n1")
	if err != nil || info.Mode().Perm() != 0o700 || !slices.Equal(p.GetDirs(), want) || len(whys) > 0 {
		t.Errorf("%v, %v; BasePath: %v", p, whys, err)
	}
}

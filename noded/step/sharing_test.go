package step_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/internal/inherit"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// keyScript is a job that says what its session keyring is, whether it can read a key of the daemon's, and what it finds of a name in
// its own; then it adds a key of that name.
const keyScript = `#!/usr/bin/python3 -IS
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
keyctl, add = {"x86_64": (250, 248), "aarch64": (219, 217)}[os.uname().machine]
def call(n, *a):
    r = libc.syscall(n, *a)
    return r if r >= 0 else -ctypes.get_errno()
buf = ctypes.create_string_buffer(200)
SESSION = ctypes.c_long(-3)
call(keyctl, 6, SESSION, buf, 200)
print(buf.value.decode())
print("daemon's key:", call(keyctl, 11, ctypes.c_long(%d), buf, 200) == len("secret"), call(keyctl, 10, SESSION, b"user", b"%s", 0) > 0)
print("earlier job's key:", call(keyctl, 10, SESSION, b"user", b"ticket", 0) > 0)
key = call(add, b"user", b"ticket", b"mine", ctypes.c_long(4), SESSION)
print("own key:", call(keyctl, 11, ctypes.c_long(key), buf, 200))
print("of the daemon:", [fd for fd in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + fd) and int(fd) > 2])
`

const ofDaemon = "sluice test: a key of the daemon's"

// TestSessionKeyring runs jobs of two users, one after the other in one shim, and a TaskProlog, under a daemon that has a key in its
// session keyring.
func TestSessionKeyring(t *testing.T) {
	if id := os.Getenv("SLUICE_TEST_KEY"); id != "" {
		testSessionKeyring(t, id)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: jobs run as another user")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	if err := inherit.NewKeyring(0, 0); err != nil {
		t.Skipf("no session keyrings here: %v", err)
	}
	id, err := unix.AddKey("user", ofDaemon, []byte("secret"), unix.KEY_SPEC_SESSION_KEYRING)
	if err != nil {
		t.Skipf("no keys here: %v", err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestSessionKeyring$", "-test.v")
	cmd.Env = append(os.Environ(), fmt.Sprintf("SLUICE_TEST_KEY=%d", id))
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestSessionKeyring") {
		t.Errorf("%v: %s", err, out)
	}
}

func testSessionKeyring(t *testing.T, id string) {
	n := newNode(t)
	if _, err := unix.KeyctlSearch(unix.KEY_SPEC_SESSION_KEYRING, "user", ofDaemon, 0); err != nil {
		t.Fatalf("the daemon does not have the key: %v", err)
	}
	var number int
	fmt.Sscan(id, &number)
	for i, uid := range []uint32{n.uid, n.uid + 1, n.uid} {
		b := n.bundle()
		b.Uid = uid
		must(t, os.Chmod(n.work, 0o777))
		if i == 1 { // by way of the trampoline
			b.TaskProlog = []string{"/bin/true"}
		}
		n.run(b, fmt.Sprintf(keyScript, number, ofDaemon))
		want := fmt.Sprintf("keyring;%d;%d;3f030000;_ses\ndaemon's key: False False\nearlier job's key: False\nown key: 4\nof the daemon: []\n",
			uid, n.gid)
		if got := n.output(b); got != want {
			t.Errorf("a job of uid %d: %q, want %q", uid, got, want)
		}
	}
}

// TestFileSystemsAreLeft: what an ended step's folder and output file are on can be unmounted, while its shim waits for another step.
func TestFileSystemsAreLeft(t *testing.T) {
	n := newNode(t)
	disk := filepath.Join(n.work, "disk")
	must(t, os.Mkdir(disk, 0o755))
	if err := unix.Mount("none", disk, "tmpfs", 0, "mode=777"); err != nil {
		t.Skipf("cannot mount here: %v", err)
	}
	mounted := true
	t.Cleanup(func() {
		if mounted {
			must(t, unix.Unmount(disk, unix.MNT_DETACH))
		}
	})
	for _, prolog := range [][]string{nil, {"/bin/true"}} {
		b := n.bundle()
		b.Dir, b.StdOut.Path, b.TaskProlog = disk, disk+"/out", prolog
		b.StdErr = &pb.StdFile{Path: disk + "/err"}
		if rec := n.run(b, "pwd"); rec.Verdict != "exited" {
			t.Errorf("%v", rec)
		}
		if got := n.output(b); got != disk+"\n" {
			t.Errorf("the job was in %q", got)
		}
	}
	// The end may be told a moment before the shim has closed what it had of the last step.
	for deadline := time.Now().Add(patience); mounted; runtime.Gosched() {
		err := unix.Unmount(disk, 0)
		if err != nil && (err != unix.EBUSY || time.Now().After(deadline)) {
			t.Errorf("after the job's end its folder is busy: %v: %s", err, holders(disk))
			return
		}
		mounted = err != nil
	}
}

// holders are the processes, and threads, that have something open below a folder.
func holders(dir string) (found []string) {
	links, _ := filepath.Glob("/proc/[0-9]*/task/[0-9]*/cwd")
	files, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, l := range append(links, files...) {
		if to, err := os.Readlink(l); err == nil && strings.HasPrefix(to, dir) {
			name, _ := os.ReadFile(regexp.MustCompile(`^/proc/\d+`).FindString(l) + "/comm")
			found = append(found, strings.TrimSpace(string(name))+" "+l)
		}
	}
	return found
}

package confine_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/sluice-hpc/sluice/noded/confine"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// TestMain lets the test binary be noded-link, which tries what it must not be able to do.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 3 && os.Args[1] == "link":
		if os.Getenv("OLD_CONTAINER") != "" {
			oldContainer()
		}
		fmt.Println(confine.Link(4711, 4712, append([]string{"test", "sealed"}, os.Args[2:]...), confine.Environment("DIR="+os.Args[2])))
		os.Exit(1)
	case len(os.Args) > 3 && os.Args[1] == "sealed":
		if err := confine.Seal(); err != nil {
			fmt.Println("seal:", err)
			os.Exit(1)
		}
		try(os.Args[2], os.Args[3])
	case len(os.Args) > 1 && os.Args[1] == "netless":
		netless()
	default:
		os.Exit(m.Run())
	}
}

func must1(f *os.File, err error) *os.File {
	if err != nil {
		panic(err)
	}
	return f
}

// try prints what works.
func try(dir, addr string) {
	says := func(what string, err error) {
		if err == nil {
			fmt.Println(what, "works")
		} else {
			fmt.Println(what, "fails")
		}
	}
	status, err := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); strings.Contains("Uid: Gid: Groups: CapPrm: CapEff: CapInh: CapBnd: CapAmb: NoNewPrivs: Seccomp:",
			f[0]) {
			fmt.Println(strings.Join(f, " "))
		}
	}
	says("reading /proc", err)
	_, err = os.ReadFile(filepath.Join(dir, "public"))
	says("reading a public file", err)
	_, err = os.ReadFile(filepath.Join(dir, "secret"))
	says("reading root's file", err)
	says("writing a public file", os.WriteFile(filepath.Join(dir, "writable"), []byte("x"), 0o666))
	_, err = os.OpenFile(filepath.Join(dir, "writable"), os.O_RDWR, 0)
	says("opening it for both", err)
	says("making a file", os.WriteFile(filepath.Join(dir, "open", "new"), nil, 0o666))
	says("making a folder", os.Mkdir(filepath.Join(dir, "open", "new"), 0o777))
	says("removing a file", os.Remove(filepath.Join(dir, "open", "old")))
	says("a link", os.Symlink("x", filepath.Join(dir, "open", "link")))
	says("changing a mode", os.Chmod(filepath.Join(dir, "open"), 0o777))
	says("a program", exec.Command("/bin/true").Run())
	says("executing itself", unix.Exec("/proc/self/exe", []string{"x"}, nil))
	c, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err == nil {
		c.Close()
	}
	says("connecting to the network", err)
	_, err = net.Dial("unix", filepath.Join(dir, "socket"))
	says("connecting to a socket", err)
	given, err := net.FileListener(os.NewFile(4, "relay"))
	if err == nil {
		var c net.Conn
		if c, err = given.Accept(); err == nil {
			_, err = unix.GetsockoptUcred(int(must1(c.(*net.UnixConn).File()).Fd()), unix.SOL_SOCKET, unix.SO_PEERCRED)
		}
	}
	says("accepting on the socket that it was given", err)
	_, err = net.Listen("tcp", "127.0.0.1:0")
	says("listening on the network", err)
	err = os.ErrNotExist
	for fd := range 32 {
		var st, secret unix.Stat_t
		known := unix.Fstat(fd, &st) == nil && unix.Stat(filepath.Join(dir, "secret"), &secret) == nil
		if known && st.Ino == secret.Ino && st.Dev == secret.Dev {
			err = nil
		}
	}
	says("having what else was open", err)
	_, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, 0)
	says("a netlink socket", err)
	_, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	says("a packet socket", err)
	_, err = unix.MemfdCreate("x", 0)
	says("a memfd", err)
	says("becoming root", syscall.Setuid(0))
	says("a namespace", unix.Unshare(unix.CLONE_NEWUSER))
	says("tracing its parent", unix.PtraceAttach(os.Getppid()))
	says("killing its parent", unix.Kill(os.Getppid(), 0))
	says("a mount", unix.Mount("none", filepath.Join(dir, "open"), "tmpfs", 0, ""))
	says("a limit", unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 10, Max: 10}))
	_, err = os.ReadFile(fmt.Sprintf("/proc/%d/environ", os.Getppid()))
	says("reading its parent's environment", err)
	fd, _, e := unix.Syscall(unix.SYS_OPENAT, ^uintptr(99), uintptr(0), unix.O_RDONLY|unix.O_TMPFILE&^unix.O_DIRECTORY)
	if _ = fd; e != unix.EPERM {
		fmt.Println("O_TMPFILE is not refused:", e)
	}
	// Combinations of which the kernel itself makes nothing: a filter that lets them through shows in the error.
	if _, _, e := unix.RawSyscall(unix.SYS_CLONE, unix.CLONE_NEWUSER|unix.CLONE_FS, 0, 0); e != unix.EPERM {
		fmt.Println("clone with a namespace is not refused:", e)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_CLONE3, 0, 0, 0); e != unix.ENOSYS {
		fmt.Println("clone3 is there:", e)
	}
	os.Exit(0)
}

// TestLink: noded-link can read what everybody may read and use the network, and nothing else.
func TestLink(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can change to another user")
	}
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Chmod(dir, 0o755))
	must(os.Chmod(filepath.Dir(dir), 0o755))
	for name, mode := range map[string]os.FileMode{"public": 0o644, "secret": 0o600, "writable": 0o666} {
		must(os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600))
		must(os.Chmod(filepath.Join(dir, name), mode))
	}
	must(os.Mkdir(filepath.Join(dir, "open"), 0o755))
	must(os.WriteFile(filepath.Join(dir, "open", "old"), nil, 0o666))
	must(os.Chmod(filepath.Join(dir, "open"), 0o777))
	l, err := net.Listen("unix", filepath.Join(dir, "socket"))
	must(err)
	defer l.Close()
	must(os.Chmod(filepath.Join(dir, "socket"), 0o777))
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	defer tcp.Close()
	leaked, err := os.Open(filepath.Join(dir, "secret"))
	must(err)
	defer leaked.Close()
	cmd := exec.Command("/proc/self/exe", "link", dir, tcp.Addr().String())
	cmd.Env = append(os.Environ(), "SECRET=xyzzy")
	relay, err := l.(*net.UnixListener).File()
	must(err)
	defer relay.Close()
	cmd.ExtraFiles = []*os.File{nil, relay, nil, leaked}
	waiting, err := net.Dial("unix", filepath.Join(dir, "socket")) // for somebody to accept it
	must(err)
	defer waiting.Close()
	out, err := cmd.CombinedOutput()
	must(err)
	want := `Uid: 4711 4711 4711 4711
Gid: 4712 4712 4712 4712
Groups:
CapInh: 0000000000000000
CapPrm: 0000000000000000
CapEff: 0000000000000000
CapBnd: 0000000000000000
CapAmb: 0000000000000000
NoNewPrivs: 1
Seccomp: 2
reading /proc works
reading a public file works
reading root's file fails
writing a public file fails
opening it for both fails
making a file fails
making a folder fails
removing a file fails
a link fails
changing a mode fails
a program fails
executing itself fails
connecting to the network works
connecting to a socket fails
accepting on the socket that it was given works
listening on the network fails
having what else was open fails
a netlink socket fails
a packet socket fails
a memfd fails
becoming root fails
a namespace fails
tracing its parent fails
killing its parent fails
a mount fails
a limit fails
reading its parent's environment fails
`
	if got := string(out); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	if b, _ := os.ReadFile(filepath.Join(dir, "writable")); string(b) != "writable" {
		t.Errorf("the public file is %q", b)
	}
}

// oldContainer has this thread's calls filtered as those of a container: no close_range(2), no change of the bounding set.
func oldContainer() {
	runtime.LockOSThread()
	eperm := bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)}
	raw, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: 0, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_CLOSE_RANGE, SkipFalse: 1}, eperm,
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_PRCTL, SkipFalse: 3},
		bpf.LoadAbsolute{Off: 16, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.PR_CAPBSET_DROP, SkipFalse: 1}, eperm,
		bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW},
	})
	if err != nil {
		panic(err)
	}
	code := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		code[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	prog := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	if _, _, e := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog))); e != 0 {
		panic(e)
	}
}

// TestLinkInAnOldContainer: what a container forbids does not keep noded-link from giving up the rest.
func TestLinkInAnOldContainer(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can change to another user")
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	cmd := exec.Command("/proc/self/exe", "link", "/nonexistent", tcp.Addr().String())
	cmd.Env = append(os.Environ(), "OLD_CONTAINER=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{"noded-link keeps some of its privileges: cannot limit the bounding set of capabilities",
		"Uid: 4711 4711 4711 4711\n",
		"Gid: 4712 4712 4712 4712\n", "Groups:\n", "CapPrm: 0000000000000000\n", "CapEff: 0000000000000000\n", "NoNewPrivs: 1\n",
		"Seccomp: 2\n"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is missing in:\n%s", want, out)
		}
	}
}

// netless is a daemon without network that starts a program.
func netless() {
	confine.KeepNet()
	fd, err := confine.NoNetwork()
	if err != nil {
		fmt.Println("none:", err)
		os.Exit(0)
	}
	own, _ := os.Readlink("/proc/self/ns/net")
	var there unix.Stat_t
	if err := unix.Fstat(fd, &there); err != nil {
		fmt.Println(err)
	}
	_, err = net.Dial("tcp", os.Getenv("ADDR"))
	flags, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	fmt.Printf("%s net:[%d] %v %d\n", own, there.Ino, err != nil, flags)
	os.Exit(0)
}

// TestNoNetwork: noded-root reaches nothing, and has the machine's namespace for those that it starts.
func TestNoNetwork(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	cmd := exec.Command("/proc/self/exe", "netless")
	cmd.Env = append(os.Environ(), "ADDR="+tcp.Addr().String())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if strings.HasPrefix(string(out), "none:") {
		t.Skipf("this machine lets nobody make network namespaces: %s", out)
	}
	machines, _ := os.Readlink("/proc/self/ns/net")
	f := strings.Fields(string(out))
	if len(f) != 4 || f[0] == machines || f[1] != machines || f[2] != "true" || f[3] != "1" {
		t.Errorf("%s; the machine's namespace is %s: want another one, the machine's, no connection, close-on-exec", out, machines)
	}
}

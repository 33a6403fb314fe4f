// Package confine drops the privileges that the node daemon's two processes do not need.
//
// noded-link gets, before it has read anything from anybody: a user of its own, no supplementary groups, no capability
// now or later (bounding set, no_new_privs), and a filter of system calls under which it can read what everybody may
// read, use the network (AF_INET and AF_INET6), and nothing else: open no file for writing, start no program, make no
// socket of another kind. That holds on every kernel. Landlock would forbid nothing that the filter allows and that a
// user without files could do.
//
// noded-root gets a network namespace of its own, with nothing in it. It makes sure that nothing in noded-root talks to
// a network by mistake or by order; it is no wall against code that runs in noded-root, which is root. A filter of
// system calls would be inherited by shims, jobs and programs of the administrator, which need the network; a namespace
// can be left at an execve (inherit.Start), as root.
//
// Each is done by one thread that then executes this program again: rights, namespaces and no_new_privs belong to
// threads, and Go has several from its first moment on. After the execve there is one, with what that one had. cgo,
// which NVIDIA's library needs, rules out Go's AllThreadsSyscall.
package confine

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// User is the account that noded-link runs as where there is one.
const User = "sluice-noded"

// UID is the user and group of noded-link on a node without such an account: one of those that systemd keeps for services without an
// account (DynamicUser=, 61184 to 65519), so that it is no person's.
const UID = 64717

// self is this program, also when its file has been replaced meanwhile.
const self = "/proc/self/exe"

// Link makes this process noded-link, and executes it again with args. What it inherits are its standard output and error, and the
// three descriptors after them. It returns only when something fails.
func Link(uid, gid uint32, args, env []string) error {
	runtime.LockOSThread()
	err := unix.CloseRange(6, ^uint(0), unix.CLOSE_RANGE_CLOEXEC) // those of noded-root close by themselves, too
	switch err {
	case nil, unix.ENOSYS, unix.EINVAL, unix.EPERM: // EPERM: an old container's filter
	default:
		return fmt.Errorf("cannot close what was inherited: %w", err)
	}
	for _, r := range []int{unix.RLIMIT_CORE, unix.RLIMIT_FSIZE} { // a dump would hold the key
		if err := unix.Setrlimit(r, &unix.Rlimit{}); err != nil {
			return fmt.Errorf("cannot limit noded-link: %w", err)
		}
	}
	if unix.Geteuid() == 0 {
		kept, err := dropUser(uid, gid)
		if err != nil {
			return err
		}
		for _, why := range kept {
			fmt.Fprintf(os.Stderr, "level=WARN msg=\"noded-link keeps some of its rights: %v\"\n", why)
		}
		if err := dropCapabilities(); err != nil {
			return err
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot set no_new_privs: %w", err)
	}
	err = unix.Exec(self, args, env)
	return fmt.Errorf("cannot execute this program as uid %d: %w; it has to be executable for everybody", uid, err)
}

// dropUser changes this thread alone, as the others do. What a container whose root is not quite root does not allow is kept, and the rest
// goes all the same.
func dropUser(uid, gid uint32) (kept []error, err error) {
	bounded := unix.Errno(0)
	for c := uintptr(0); c <= 63; c++ {
		if e := prctl(unix.PR_CAPBSET_DROP, c); e != 0 && e != unix.EINVAL && bounded == 0 { // EINVAL: there are fewer
			bounded = e
		}
	}
	_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) // since 4.3
	id := func(nr, id uintptr) unix.Errno {
		_, _, e := unix.RawSyscall(nr, id, id, id)
		return e
	}
	for _, step := range []struct {
		what string
		e    unix.Errno
	}{
		{"limit the capabilities to be had", bounded},
		{"leave the groups", id(unix.SYS_SETGROUPS, 0)},
		{fmt.Sprintf("change to group %d", gid), id(unix.SYS_SETRESGID, uintptr(gid))},
		{fmt.Sprintf("change to user %d", uid), id(unix.SYS_SETRESUID, uintptr(uid))},
	} {
		why := fmt.Errorf("cannot %s: %w", step.what, step.e)
		switch step.e {
		case 0:
		case unix.EPERM, unix.EINVAL:
			kept = append(kept, why)
		default:
			return kept, why
		}
	}
	return kept, nil
}

func prctl(option int, arg uintptr) unix.Errno {
	_, _, e := unix.RawSyscall6(unix.SYS_PRCTL, uintptr(option), arg, 0, 0, 0, 0)
	return e
}

func dropCapabilities() error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&hdr, &none[0]); err != nil {
		return fmt.Errorf("cannot give up the capabilities: %w", err)
	}
	return nil
}

// Seal is the rest, once noded-link has been executed: no other process of its user may look into it, and its calls are restricted.
func Seal() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot keep others out of noded-link: %w", err)
	}
	return Calls()
}

// netVar tells the process that is executed which descriptor is the machine's network namespace.
const netVar = "SLUICE_NODED_NET"

// NoNetwork moves this process into a network namespace of its own, by executing it again, and gives a descriptor of the machine's
// namespace, for those that it starts; -1: this process may not make a namespace, for the reason why.
func NoNetwork() (machines int, why error) {
	if s := os.Getenv(netVar); s != "" {
		_ = os.Unsetenv(netVar)
		fd, err := strconv.Atoi(s)
		if err != nil {
			return -1, err
		}
		return fd, nil
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("cannot open the network namespace: %w", err)
	}
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("cannot make a network namespace: %w", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil { // only now: nothing else is to inherit it
		return -1, err
	}
	err = unix.Exec(self, os.Args, append(os.Environ(), netVar+"="+strconv.Itoa(fd)))
	_ = unix.Setns(fd, unix.CLONE_NEWNET)
	_ = unix.Close(fd)
	return -1, fmt.Errorf("cannot execute this program again: %w", err)
}

// Name is what ps(1) and pkill(1) call this process: after an execve of /proc/self/exe that is "exe". It is for init, which runs on the
// first thread.
func Name(name string) {
	b := append([]byte(name), 0)
	_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&b[0])), 0, 0, 0)
}

// KeepNet keeps the descriptor of NoNetwork from being closed as an inherited one, and from being inherited. It is for the beginning of
// main.
func KeepNet() {
	if fd, err := strconv.Atoi(os.Getenv(netVar)); err == nil && fd > 2 {
		unix.CloseOnExec(fd)
	}
}

// Environment is that of noded-link: nothing of what the daemon was started with but the time zone.
func Environment(more ...string) []string {
	env := []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "GODEBUG=netdns=go"} // the C library's resolver would load modules
	for _, kv := range os.Environ() {
		if strings.HasPrefix(kv, "TZ=") {
			env = append(env, kv)
		}
	}
	return append(env, more...)
}

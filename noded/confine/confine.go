// Package confine drops the privileges that the node daemon's two processes do not need.
//
// Before it reads anything from anybody, noded-link gets a user of its own, no supplementary groups, no capabilities now or later
// (bounding set, no_new_privs), and a system call filter. Under the filter it can read what everybody may read and use the
// network (AF_INET and AF_INET6). It can open no file for writing, start no program, and create no other kind of socket. This
// works on every kernel. Landlock would forbid nothing that both the filter and a user without files allow.
//
// noded-root gets an empty network namespace. It ensures that nothing in noded-root uses the network, by mistake or by order. It
// does not contain code that runs in noded-root, which is root. A system call filter would be inherited by shims, jobs and the
// administrator's programs, which need the network; root can leave a namespace at an execve (inherit.Start).
//
// One thread does this and then executes this program again: privileges, namespaces and no_new_privs belong to threads, and a Go
// program has several from the start. After the execve there is one thread, with the attributes of the one that called it. Go's
// AllThreadsSyscall is no alternative, because it rules out cgo, which NVIDIA's library needs.
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

// User is the account of noded-link, if it exists.
const User = "sluice-noded"

// UID is the uid and gid of noded-link on a node without such an account. It is in systemd's range for services without an
// account (DynamicUser=, 61184 to 65519), so it belongs to no person.
const UID = 64717

// self is this program, even if its file was replaced meanwhile.
const self = "/proc/self/exe"

// Link turns this process into noded-link and executes it again with args. It inherits standard output and error, and the three
// descriptors after them. Link returns only on failure.
func Link(uid, gid uint32, args, env []string) error {
	runtime.LockOSThread()
	err := unix.CloseRange(6, ^uint(0), unix.CLOSE_RANGE_CLOEXEC) // noded-root's descriptors are close-on-exec anyway
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
			fmt.Fprintf(os.Stderr, "level=WARN msg=\"noded-link keeps some of its privileges: %v\"\n", why)
		}
		if err := dropCapabilities(); err != nil {
			return err
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot set no_new_privs: %w", err)
	}
	err = unix.Exec(self, args, env)
	return fmt.Errorf("cannot execute this program as uid %d: %w; make it executable for everybody", uid, err)
}

// dropUser changes this thread alone. In a container, root may lack some of these rights: what it cannot drop is kept, and the
// rest is dropped nevertheless.
func dropUser(uid, gid uint32) (kept []error, err error) {
	bounded := unix.Errno(0)
	for c := uintptr(0); c <= 63; c++ {
		if e := prctl(unix.PR_CAPBSET_DROP, c); e != 0 && e != unix.EINVAL && bounded == 0 { // EINVAL: no such capability
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
		{"limit the bounding set of capabilities", bounded},
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

// Seal finishes the confinement in the executed noded-link: it keeps other processes of its user out and installs the filter.
func Seal() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot make noded-link undumpable: %w", err)
	}
	return Calls()
}

// netVar tells the executed process which descriptor is the machine's network namespace.
const netVar = "SLUICE_NODED_NET"

// NoNetwork moves this process into an empty network namespace by executing it again. It returns a descriptor of the machine's
// namespace, for the programs that it starts; -1: this process may not create a namespace, for the reason why.
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
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil { // last, so that nothing else inherits it
		return -1, err
	}
	err = unix.Exec(self, os.Args, append(os.Environ(), netVar+"="+strconv.Itoa(fd)))
	_ = unix.Setns(fd, unix.CLONE_NEWNET)
	_ = unix.Close(fd)
	return -1, fmt.Errorf("cannot execute this program again: %w", err)
}

// Name sets the name that ps(1) and pkill(1) show for this process: after an execve of /proc/self/exe it would be "exe". Call it
// from init, which runs on the first thread.
func Name(name string) {
	b := append([]byte(name), 0)
	_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&b[0])), 0, 0, 0)
}

// KeepNet protects the descriptor of NoNetwork from the closing of inherited descriptors, and makes it close-on-exec. Call it at
// the start of main.
func KeepNet() {
	if fd, err := strconv.Atoi(os.Getenv(netVar)); err == nil && fd > 2 {
		unix.CloseOnExec(fd)
	}
}

// Environment returns noded-link's environment. It takes only the time zone from the daemon's.
func Environment(more ...string) []string {
	env := []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "GODEBUG=netdns=go"} // the C library's resolver would load modules
	for _, kv := range os.Environ() {
		if strings.HasPrefix(kv, "TZ=") {
			env = append(env, kv)
		}
	}
	return append(env, more...)
}

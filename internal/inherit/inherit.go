// Package inherit controls what a child process inherits without being asked: open descriptors, the session keyring, and
// the protection from the OOM killer. All of these outlive a change of user, so a program that a root daemon starts for
// a user would have root's.
package inherit

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// NewKeyring gives the calling thread, and whatever it starts from now on, a session keyring that is new and empty and belongs to that
// user. The other threads keep theirs, so the caller must be locked to its thread.
//
// It is not linked to the user keyring (@u): as for a service of systemd (KeyringMode=private) and unlike for a login, the keys of one
// job are not those of the next. A job can do that itself, with `keyctl link @u @s`.
//
// A keyring counts against the quota of its owner (200 keys, unless kernel.keys.maxkeys says otherwise). When that is used up the new one
// stays root's: the job possesses it, and so can do with it what it could with one of its own.
func NewKeyring(uid, gid uint32) error {
	// Without a name, which unix.KeyctlJoinSessionKeyring cannot leave out.
	id, _, e := unix.RawSyscall(unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0)
	if e != 0 {
		return fmt.Errorf("cannot make a session keyring: %w", e)
	}
	if int(uid) == os.Getuid() && int(gid) == os.Getgid() {
		return nil
	}
	_, _, e = unix.RawSyscall6(unix.SYS_KEYCTL, unix.KEYCTL_CHOWN, id, uintptr(uid), uintptr(gid), 0, 0)
	if e != 0 && e != unix.EDQUOT && e != unix.EACCES { // EACCES: root without CAP_SYS_ADMIN, in a container
		return fmt.Errorf("cannot give a session keyring to uid %d: %w", uid, e)
	}
	return nil
}

// Net is a descriptor of the network namespace that programs are started in, by a daemon that has none itself; -1: its own.
var Net = -1

// Start is cmd.Start for a program that gets a session keyring of its own. Where the kernel has no keyrings, or a container forbids them to
// this process and so to its children, there is none to be kept from.
func Start(cmd *exec.Cmd) error {
	uid, gid := uint32(os.Getuid()), uint32(os.Getgid())
	if cmd.SysProcAttr != nil && cmd.SysProcAttr.Credential != nil {
		uid, gid = cmd.SysProcAttr.Credential.Uid, cmd.SysProcAttr.Credential.Gid
	}
	return OnThread(func() error {
		if Net >= 0 {
			if err := unix.Setns(Net, unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("cannot enter the machine's network: %w", err)
			}
		}
		_ = NewKeyring(uid, gid)
		return unspared(cmd.Start)
	})
}

// OnThread runs f on a thread of its own, which ends with it: what f makes of the thread's attributes is nobody else's.
func OnThread(f func() error) error {
	done := make(chan error, 1)
	go onThread(func() { done <- f() })
	return <-done
}

// onThread belongs to a goroutine of its own. It keeps off the first thread, which Go never ends but parks as it is.
func onThread(f func()) {
	runtime.LockOSThread() // a thread ends with the goroutine that has locked it
	if unix.Gettid() != unix.Getpid() {
		f()
		return
	}
	other := make(chan struct{})
	go func() { // cannot run on this thread
		defer close(other)
		runtime.LockOSThread()
		f()
	}()
	<-other
	runtime.UnlockOSThread()
}

// CombinedOutput is cmd.CombinedOutput for a program that is started so.
func CombinedOutput(cmd *exec.Cmd) ([]byte, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := Start(cmd); err != nil {
		return nil, err
	}
	err := cmd.Wait()
	return out.Bytes(), err
}

// Close closes every descriptor that this process has inherited, but for 0, 1, 2 and the next few. It must be called first in main: it
// tells them from the runtime's own, and from what packages opened when they were initialised, by FD_CLOEXEC, which these have, and which
// nothing that came through an execve can have.
func Close(keep int) {
	var names []string
	if dir, err := os.Open("/proc/self/fd"); err == nil {
		names, _ = dir.Readdirnames(-1)
		dir.Close()
	}
	if names == nil { // no /proc
		for fd := range 1024 {
			names = append(names, strconv.Itoa(fd))
		}
	}
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil || fd < 3+keep {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
}

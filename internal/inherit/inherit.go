// Package inherit controls what a child process inherits implicitly: open descriptors, the session keyring, and the protection from
// the OOM killer. All of these survive a change of user, so a program that a root daemon starts for a user would have root's.
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

// NewKeyring gives the calling thread, and the processes it starts, a new, empty session keyring that belongs to the given user.
// Other threads keep theirs, so the caller must be locked to its thread.
//
// It is not linked to the user keyring (@u): as for a systemd service (KeyringMode=private) and unlike for a login, jobs do not
// share keys. A job can do that itself, with `keyctl link @u @s`.
//
// A keyring counts against the quota of its owner (200 keys, unless kernel.keys.maxkeys differs). If the quota is exhausted, the
// new keyring stays root's: the job possesses it and can use it like one of its own.
func NewKeyring(uid, gid uint32) error {
	// A raw call, because unix.KeyctlJoinSessionKeyring requires a name.
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

// Net is a descriptor of the network namespace in which a daemon without network starts programs; -1: the daemon's own.
var Net = -1

// Start is cmd.Start with a new session keyring for the program. If the kernel has no keyrings, or a container forbids them, the
// program cannot inherit one either.
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

// OnThread runs f on a thread of its own, which ends afterwards, so changes of the thread's attributes affect nothing else.
func OnThread(f func() error) error {
	done := make(chan error, 1)
	go onThread(func() { done <- f() })
	return <-done
}

// onThread must run in a goroutine of its own. It avoids the main thread, which Go never ends but parks with its attributes.
func onThread(f func()) {
	runtime.LockOSThread() // the thread ends with the goroutine that locked it
	if unix.Gettid() != unix.Getpid() {
		f()
		return
	}
	other := make(chan struct{})
	go func() { // cannot be scheduled on this thread
		defer close(other)
		runtime.LockOSThread()
		f()
	}()
	<-other
	runtime.UnlockOSThread()
}

// CombinedOutput is cmd.CombinedOutput with Start.
func CombinedOutput(cmd *exec.Cmd) ([]byte, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := Start(cmd); err != nil {
		return nil, err
	}
	err := cmd.Wait()
	return out.Bytes(), err
}

// Close closes every inherited descriptor except 0, 1, 2 and the next keep ones. Call it first in main. It recognises inherited
// descriptors by the missing FD_CLOEXEC: descriptors of the runtime and of package initialisation have the flag, and one that
// survived an execve cannot.
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

package stepd

import (
	"fmt"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// creds changes the identity of the calling OS thread, not of the process: it uses raw system calls, because the C library and Go
// change all threads. The calling goroutine must be locked to its thread for good.
type creds struct {
	root   bool     // effective uid 0: can become any user
	groups []uint32 // the shim's own
	gid    int
}

func ownCreds() creds {
	c := creds{root: os.Geteuid() == 0, gid: os.Getegid()}
	g, _ := os.Getgroups()
	for _, id := range g {
		c.groups = append(c.groups, uint32(id))
	}
	return c
}

const keep = ^uintptr(0) // -1: leave this id alone

// become takes the effective uid, gid and groups of a user. If become or leave fails, the thread must be discarded.
func (c creds) become(uid, gid uint32, groups []uint32) error {
	if none := uint32(keep & 0xffffffff); uid == none || gid == none || slices.Contains(groups, none) { // it would stay root
		return fmt.Errorf("cannot become uid %d with gid %d: %d is no id", uid, gid, none)
	}
	if !c.root {
		if int(uid) != os.Geteuid() {
			return fmt.Errorf("cannot become uid %d: the node daemon runs as uid %d, not as root", uid, os.Geteuid())
		}
		return nil
	}
	if err := setgroups(groups); err != nil {
		return fmt.Errorf("cannot take the %d groups of uid %d: %w", len(groups), uid, err)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, keep, uintptr(gid), keep); e != 0 {
		return fmt.Errorf("cannot become gid %d: %w", gid, e)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(uid), keep); e != 0 {
		return fmt.Errorf("cannot become uid %d: %w", uid, e)
	}
	return nil
}

// leave goes back to root.
func (c creds) leave() error {
	if !c.root {
		return nil
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, keep, 0, keep); e != 0 {
		return fmt.Errorf("cannot become root again: %w", e)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, keep, uintptr(c.gid), keep); e != 0 {
		return fmt.Errorf("cannot take back gid %d: %w", c.gid, e)
	}
	return setgroups(c.groups)
}

// really runs f with the user's ids also as the thread's real ones, which prlimit(2) compares. Meanwhile the user could signal
// the thread and so end the shim, but only that of the user's own job.
func (c creds) really(uid, gid uint32, f func() error) error {
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(gid), uintptr(gid), keep); e != 0 {
		return e
	}
	_, _, e := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), keep)
	var err error = e
	if e == 0 {
		err = f()
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, 0, 0, keep); e != 0 {
		return &identityError{e}
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(c.gid), uintptr(c.gid), keep); e != 0 {
		return &identityError{e}
	}
	return err
}

func setgroups(groups []uint32) error {
	var p unsafe.Pointer
	if len(groups) > 0 {
		p = unsafe.Pointer(&groups[0])
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(p), 0); e != 0 {
		return e
	}
	return nil
}

// check makes sure, once, that becoming a user drops all capabilities: a securebit could prevent it.
func (c creds) check() error {
	if !c.root {
		return nil
	}
	if err := c.become(65534, 65534, nil); err != nil {
		return err
	}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return fmt.Errorf("cannot read capabilities: %w", err)
	}
	if data[0].Effective|data[1].Effective != 0 {
		return fmt.Errorf("cannot drop capabilities: a thread with another uid still has %#x (securebits?)", data)
	}
	return c.leave()
}

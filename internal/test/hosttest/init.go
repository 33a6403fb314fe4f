package hosttest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// specEnv makes this binary the first process of the host that it describes.
const specEnv = "SLUICE_HOSTTEST_HOST"

// spec is the description for the first process of a host.
type spec struct {
	Name string
	Dir  string // the host's own directory
}

// Main must be called first by TestMain of every package that creates hosts: in the first process of a host it does not return.
func Main() {
	text := os.Getenv(specEnv)
	if text == "" {
		return
	}
	var s spec
	err := json.Unmarshal([]byte(text), &s)
	if err == nil {
		err = s.setUp()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("ready")
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0) // the kernel kills the rest of the host
	}()
	reap()
}

// reap collects orphaned processes of the host, as every init must.
func reap() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	for range ended {
		for {
			pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
			if pid <= 0 && !errors.Is(err, unix.EINTR) {
				break
			}
		}
	}
}

// setUp mounts the host's own directories over those of the machine.
func (s spec) setUp() error {
	in := func(name string) string { return filepath.Join(s.Dir, name) }
	return cmp.Or(
		mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""),
		mount(in("boot_id"), "/proc/sys/kernel/random/boot_id", "", unix.MS_BIND, ""),
		mount("/etc", in("machine-etc"), "", unix.MS_BIND, ""),
		mount(in("etc"), "/etc", "", unix.MS_BIND, ""),
		mount(in("spool"), "/var/spool", "", unix.MS_BIND, ""),
		mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"),
		mount("tmpfs", "/tmp", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777"),
		os.NewSyscallError("sethostname", syscall.Sethostname([]byte(s.Name))),
	)
}

func mount(from, to, kind string, flags uintptr, data string) error {
	if err := unix.Mount(from, to, kind, flags, data); err != nil {
		return fmt.Errorf("cannot mount %s: %w", to, err)
	}
	return nil
}

package daemontest

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// apartEnv is set in the process that Apart starts.
const apartEnv = "SLUICE_TEST_APART"

// configured are the directories with the configuration and the sockets of a cluster on this machine.
var configured = []string{"/etc/slurm", "/etc/sluice", "/run/sluice", "/run/sluice-ctld"}

// profiles are the files that root's login shells read, which tests start: they may print, wait for locks or take seconds.
var profiles = []string{".bash_profile", ".bash_login", ".profile", ".bashrc"}

// Apart runs the tests in another process, isolated from this machine: it has an empty network of its own, sees neither the
// configuration of a cluster on this machine nor root's profile, and has nice value 0. Unless host is "", it becomes the machine's
// name there. TestMain calls it first, and exits with code if ran is true. ran is false in the other process, and without the
// rights to start one.
func Apart(host string) (code int, ran bool) {
	if os.Getenv(apartEnv) != "" {
		if err := settle(host); err != nil {
			fmt.Fprintln(os.Stderr, "cannot set the tests apart from this machine:", err)
			return 1, true
		}
		return 0, false
	}
	self, err := os.Executable()
	if os.Getuid() != 0 || err != nil || unix.Access("/dev/net/tun", unix.R_OK|unix.W_OK) != nil {
		return 0, false
	}
	// Download dependencies now: the other process has no network.
	_ = exec.Command("go", "list", "-deps", "github.com/sluice-hpc/sluice/cmd/...").Run()
	runtime.LockOSThread()                        // Pdeathsig: the end of this thread would kill the other process
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, 0) // jobs inherit sbatch's nice value, and the expected answers assume 0
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), apartEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUTS | unix.CLONE_NEWNS | unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		return 0, false // not permitted in a container
	}
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode(), true
}

func settle(host string) error {
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	for _, dir := range configured {
		if _, none := os.Stat(dir); none == nil {
			err = errors.Join(err, unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"))
		}
	}
	if home, none := os.UserHomeDir(); none == nil {
		for _, name := range profiles {
			if path := filepath.Join(home, name); unix.Access(path, unix.F_OK) == nil {
				err = errors.Join(err, unix.Mount("/dev/null", path, "", unix.MS_BIND, ""))
			}
		}
	}
	if host != "" {
		err = errors.Join(err, unix.Sethostname([]byte(host)))
	}
	// Some programs, such as those of MPI, do not use the loopback device.
	_, down := device("10.77.0.1") // open as long as this process lives
	return errors.Join(err, down)
}

// Device creates eth0 in the network of the calling thread with an IPv4 address, and brings it and lo up. Reading the file returns
// the packets sent to it.
func Device(addr string) (*os.File, error) {
	fd, err := device(addr)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "eth0"), nil
}

func device(addr string) (fd int, err error) {
	fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("open /dev/net/tun", err)
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		unix.Close(fd)
		return -1, os.NewSyscallError("socket", err)
	}
	defer unix.Close(s)
	set := func(on int, req uint, name, what string, fill func(*unix.Ifreq) error) {
		r, e := unix.NewIfreq(name)
		if err == nil && e == nil {
			e = fill(r)
		}
		if err == nil && e == nil {
			e = unix.IoctlIfreq(on, req, r)
		}
		if err == nil && e != nil {
			err = fmt.Errorf("cannot set %s of %s: %w", what, name, e)
		}
	}
	flags := func(f uint16) func(*unix.Ifreq) error {
		return func(r *unix.Ifreq) error { r.SetUint16(f); return nil }
	}
	inet := func(a string) func(*unix.Ifreq) error {
		ip := netip.MustParseAddr(a).As4()
		return func(r *unix.Ifreq) error { return r.SetInet4Addr(ip[:]) }
	}
	set(fd, unix.TUNSETIFF, "eth0", "the device", flags(unix.IFF_TUN|unix.IFF_NO_PI))
	set(s, unix.SIOCSIFADDR, "eth0", "the address", inet(addr))
	set(s, unix.SIOCSIFNETMASK, "eth0", "the netmask", inet("255.255.255.0"))
	set(s, unix.SIOCSIFFLAGS, "eth0", "the state", flags(unix.IFF_UP|unix.IFF_RUNNING))
	set(s, unix.SIOCSIFFLAGS, "lo", "the state", flags(unix.IFF_UP|unix.IFF_RUNNING))
	if err != nil {
		unix.Close(fd)
	}
	return fd, err
}

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

// apartEnv is set in the process that Apart has started.
const apartEnv = "SLUICE_TEST_APART"

// configured are where a cluster that runs on this machine has its configuration and its sockets.
var configured = []string{"/etc/slurm", "/etc/sluice", "/run/sluice", "/run/sluice-ctld"}

// profiles are what root's login shells read, which tests start: they may print, wait for locks or take seconds.
var profiles = []string{".bash_profile", ".bash_login", ".profile", ".bashrc"}

// Apart runs the tests in another process, which has a network of its own, with nobody else in it, and sees no configuration of a
// cluster that this machine may have, and no profile of root's. There the machine is called host, unless that is "". That process is not
// nice, however nice this one is. TestMain calls it first, and ends with code if it ran; in the other process, and where only root could
// make one, it is false.
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
	// What the programs are built of has to be here: there is no network there.
	_ = exec.Command("go", "list", "-deps", "github.com/sluice-hpc/sluice/cmd/...").Run()
	runtime.LockOSThread()                        // whose end would end the other process
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, 0) // a job is as nice as its sbatch; what is expected is the answers of one that is not
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), apartEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUTS | unix.CLONE_NEWNS | unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		return 0, false // in a container that may not
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
	// Some programs, of MPI for one, use no loopback.
	_, down := device("10.77.0.1") // for as long as this process lives
	return errors.Join(err, down)
}

// Device makes eth0 in the network of the calling thread, with that IPv4 address, and brings it and lo up. What it sends can be read.
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

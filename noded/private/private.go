// Package private gives jobs private parts of a node: directories such as /dev/shm and /tmp, System V shared memory and
// semaphores, and message queues (job_container.conf(5), SlurmdParameters=private_ipc). It also prevents jobs from gaining
// privileges (no_new_privs, capabilities).
//
// # How
//
// All of these are attributes of the thread that forks the job's first process: a mount namespace in which other directories are
// mounted over the named ones, an IPC namespace, no_new_privs, a bounding set. None can be undone, so such a thread starts one
// step and ends.
//
// # The end
//
// The namespaces are not pinned: they end with the last process of the job, and with them the files in /dev/shm and the contents
// of the IPC namespace, whatever was killed first. The node daemon deletes files on disk, below BasePath: with Remove when a step
// is forgotten, and with Sweep, at startup, those that belong to no step any more.
//
// Rejected: pinning the namespaces below BasePath, as Slurm does for its other steps, because mounts that survive a kill -9 must
// be found and undone. Returning to the daemon's namespace with setns(2), because it would move a daemon in a chroot to that
// namespace's own root.
//
// # Steps
//
// The steps of an allocation are in its namespaces on the node: their shims Join the thread that has made them, which exists as
// long as the allocation.
package private

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/internal/inherit"
	"github.com/sluice-hpc/sluice/internal/trusted"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Shm is in memory, not on disk, as in Slurm.
const Shm = "/dev/shm"

// Wanted reports whether a step needs a thread of its own.
func Wanted(p *pb.Privacy) bool {
	return len(p.GetDirs()) > 0 || p.GetIpc() || p.GetNoNewPrivs() || p.GetBounded()
}

// Apart reports whether a step is in namespaces of its job.
func Apart(p *pb.Privacy) bool { return spaces(p) != 0 }

// spaces returns the needed namespaces, as flags of clone(2).
func spaces(p *pb.Privacy) (flags int) {
	if len(p.GetDirs()) > 0 {
		flags |= unix.CLONE_NEWNS
	}
	if p.GetIpc() {
		flags |= unix.CLONE_NEWIPC
	}
	return flags
}

// InMemory reports whether nothing of it is on disk: then it costs nothing, and jobs get it by default.
func InMemory(p *pb.Privacy) bool {
	return !slices.ContainsFunc(p.GetDirs(), func(dir string) bool { return dir != Shm })
}

// Enter creates namespaces for the calling thread and its children; name is the step's name below BasePath. A step in an
// allocation, "job_7.1/step_0", that could not Join the allocation's namespaces shares its directories on disk but has its own
// memory. The thread must be locked to its goroutine, and end with it. nil: none are needed.
func Enter(p *pb.Privacy, name string) (*Room, error) {
	flags := spaces(p)
	if flags == 0 {
		return nil, nil
	}
	name, _, shared := strings.Cut(name, "/")
	room := newRoom(p)
	if err := apart(flags); err != nil {
		return room, err
	}
	if flags&unix.CLONE_NEWNS != 0 && p.GetIpc() {
		room.queues()
	}
	for i, dir := range p.GetDirs() {
		if err := cover(p, name, i, dir, shared); err != nil {
			return room, err
		}
	}
	room.look()
	room.whole = true
	return room, nil
}

// apart creates the namespaces as copies of the node's.
func apart(flags int) error {
	if err := unix.Unshare(flags); err != nil {
		return fmt.Errorf("cannot create namespaces: %w", err)
	}
	if flags&unix.CLONE_NEWNS == 0 {
		return nil
	}
	// Later mounts of the node appear here too (automounters), but mounts made here do not appear there.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("cannot detach the mount namespace from the node's: %w", err)
	}
	return nil
}

// cover mounts an empty directory, writable for everybody in the job, over another.
func cover(p *pb.Privacy, name string, i int, dir string, shared bool) error {
	if dir == Shm {
		if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777"); err != nil {
			return fmt.Errorf("cannot create a private %s: %w", dir, err)
		}
		return nil
	}
	from, err := makeOwn(p.GetBase(), name, fmt.Sprint(i), shared)
	if err == nil {
		err = unix.Mount(from, dir, "", unix.MS_BIND, "")
	}
	if err != nil {
		return fmt.Errorf("cannot create a private %s: %w", dir, err)
	}
	return nil
}

// makeOwn creates a directory of a step, writable for everybody in it; shared: it may exist already.
func makeOwn(base, step, name string, shared bool) (string, error) {
	root, err := openBase(base)
	if err != nil {
		return "", err
	}
	defer root.Close()
	own := filepath.Join(step, name)
	if err := root.Mkdir(step, 0o700); err != nil && !errors.Is(err, os.ErrExist) { // reachable only through the mount
		return "", err
	}
	if err := root.Mkdir(own, 0o700); err != nil && !(shared && errors.Is(err, os.ErrExist)) {
		return "", err
	}
	dir, err := root.Open(own)
	if err != nil {
		return "", err
	}
	defer dir.Close()
	return filepath.Join(root.Name(), own), dir.Chmod(0o777 | os.ModeSticky)
}

// isMount reports whether something is mounted there, by the kernel's list: a directory that is not a mount would be mounted
// over.
func isMount(path string) bool {
	mounts, _ := os.ReadFile("/proc/thread-self/mounts")
	return bytes.Contains(mounts, []byte(" "+path+" "))
}

// Restrict removes privileges from the calling thread and its children.
func Restrict(p *pb.Privacy) error {
	if p.GetBounded() {
		if err := bound(p.GetCapabilities()); err != nil {
			return fmt.Errorf("cannot restrict capabilities: %w", err)
		}
	}
	if p.GetNoNewPrivs() {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("cannot set no_new_privs: %w", err)
		}
	}
	return nil
}

// bound drops all other capabilities from the bounding set, and all from the inheritable one, from which a root-owned program
// would regain them.
func bound(keep uint64) error {
	for c := range uintptr(64) {
		if keep>>c&1 != 0 {
			continue
		}
		has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0)
		if err == unix.EINVAL { // the kernel has no more of them
			break
		}
		if err == nil && has == 1 {
			err = unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		}
		if err != nil {
			return err
		}
	}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return err
	}
	data[0].Inheritable, data[1].Inheritable = 0, 0
	return unix.Capset(&hdr, &data[0])
}

// Available returns p without the parts that this machine does not support, and the reasons. spool is where jobs' scripts are,
// which must stay visible.
func Available(p *pb.Privacy, spool string) (*pb.Privacy, []error) {
	if !Wanted(p) {
		return nil, nil
	}
	var whys []error
	out := &pb.Privacy{Base: p.Base, Ipc: p.Ipc, NoNewPrivs: p.NoNewPrivs, Bounded: p.Bounded, Capabilities: p.Capabilities}
	for _, dir := range p.Dirs {
		real, base, err := usable(p, dir, spool)
		if err != nil {
			whys = append(whys, fmt.Errorf("jobs share %s: %w", dir, err))
			continue
		}
		if base != "" {
			out.Base = base
		}
		if !slices.Contains(out.Dirs, real) {
			out.Dirs = append(out.Dirs, real)
		}
	}
	if len(out.Dirs) > 0 {
		if err := inherit.OnThread(func() error { return tryMounts(out.Dirs) }); err != nil {
			whys = append(whys, fmt.Errorf("jobs share %s: %w", strings.Join(out.Dirs, " and "), err))
			out.Dirs = nil
		}
	}
	for _, part := range []struct {
		what string
		on   *bool
		try  func() error
	}{
		{"jobs share System V memory and message queues", &out.Ipc, func() error { return apart(unix.CLONE_NEWIPC) }},
		{"jobs can gain privileges", &out.NoNewPrivs, func() error { return Restrict(&pb.Privacy{NoNewPrivs: true}) }},
		{"jobs can gain any capability", &out.Bounded, func() error { return Restrict(&pb.Privacy{Bounded: true}) }},
	} {
		if !*part.on {
			continue
		}
		if err := inherit.OnThread(part.try); err != nil {
			whys = append(whys, fmt.Errorf("%s: %w", part.what, err))
			*part.on = false
		}
	}
	return out, whys
}

func tryMounts(dirs []string) error {
	err := apart(unix.CLONE_NEWNS)
	if err == nil && slices.Contains(dirs, Shm) {
		err = cover(nil, "", 0, Shm, false)
	}
	return err
}

// usable returns the real paths of a directory and of BasePath if jobs can have the directory privately.
func usable(p *pb.Privacy, dir, spool string) (real, base string, err error) {
	scripts, err := filepath.EvalSymlinks(spool)
	if err != nil {
		return "", "", err
	}
	hides := fmt.Errorf("it contains the spool directory %s with the jobs' scripts", spool)
	if dir == Shm {
		if within(scripts, dir) {
			return "", "", hides
		}
		return dir, "", nil
	}
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() {
		return "", "", errors.Join(errors.New("it is not a directory on this node"), err)
	}
	if real, err = trusted.Path(dir); err != nil { // a later mount over it must cover what was checked here
		return "", "", err
	}
	if within(scripts, real) {
		return "", "", hides
	}
	if real == Shm {
		return real, "", nil
	}
	if info, err = os.Lstat(real); err != nil {
		return "", "", err
	}
	// With an /etc of their own, jobs could become root through any set-user-ID program.
	if info.Mode()&0o002 == 0 || info.Mode()&os.ModeSticky == 0 {
		return "", "", fmt.Errorf("only a world-writable directory with the sticky bit, such as /tmp, can be private (it has %#o)",
			info.Mode().Perm())
	}
	if base, err = makeBase(p.Base, p.MakeBase); err != nil {
		if !p.MakeBase && errors.Is(err, os.ErrNotExist) {
			return "", "", fmt.Errorf("cannot use BasePath (AutoBasePath=true makes it): %w", err)
		}
		return "", "", fmt.Errorf("cannot use BasePath: %w", err)
	}
	if within(base, real) {
		return "", "", fmt.Errorf("BasePath %s is in it", filepath.Dir(base))
	}
	return real, base, nil
}

func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(filepath.Clean(dir), "/")+"/")
}

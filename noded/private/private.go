// Package private gives jobs private parts of a node: directories such as /dev/shm and /tmp, System V shared memory and
// semaphores, and message queues (job_container.conf(5), SlurmdParameters=private_ipc). It also prevents jobs from
// gaining rights (no_new_privs, capabilities).
//
// # How
//
// All of it is an attribute of the thread that forks the job's first process: a mount namespace in which other
// directories lie over the named ones, an IPC namespace, no_new_privs, a bounding set. None of it can be undone, so such
// a thread makes one step and ends.
//
// # The end
//
// Namespaces are pinned nowhere: with the last process of the job they are gone, and with them the files in /dev/shm and
// the contents of the IPC namespace, whoever was killed before. Files on disk, below BasePath, are deleted by the node
// daemon: Remove when a step is forgotten, and Sweep, at its start, whatever belongs to no step any more.
//
// Rejected: pinning the namespaces below BasePath, as Slurm does for its other steps, because mounts that survive a kill
// -9 have to be found and undone. Returning to the daemon's namespace with setns(2), because it would take a daemon in a
// chroot to that namespace's own root.
//
// # Steps
//
// The steps of an allocation are in its namespaces on the node: their shims Join the thread that has made them, which
// exists as long as the allocation.
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

// Shm is no folder on disk but memory, as in Slurm.
const Shm = "/dev/shm"

// Wanted is true when a step needs a thread of its own.
func Wanted(p *pb.Privacy) bool {
	return len(p.GetDirs()) > 0 || p.GetIpc() || p.GetNoNewPrivs() || p.GetBounded()
}

// Apart is true when a step is in namespaces of its job.
func Apart(p *pb.Privacy) bool { return spaces(p) != 0 }

// spaces are the namespaces that it takes, as in clone(2).
func spaces(p *pb.Privacy) (flags int) {
	if len(p.GetDirs()) > 0 {
		flags |= unix.CLONE_NEWNS
	}
	if p.GetIpc() {
		flags |= unix.CLONE_NEWIPC
	}
	return flags
}

// InMemory is true when nothing of it lies on disk: it costs nothing, and is given to jobs without their knowing.
func InMemory(p *pb.Privacy) bool {
	return !slices.ContainsFunc(p.GetDirs(), func(dir string) bool { return dir != Shm })
}

// Enter makes namespaces for the calling thread, and what it starts; name is that of the step below BasePath. A step in an allocation,
// "job_7.1/step_0", which could not Join that one's, shares the folders on disk with it; what is in memory is its own. The thread must be
// locked to its goroutine, and end with it. nil: none are needed.
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

// apart makes the namespaces as copies of the node's.
func apart(flags int) error {
	if err := unix.Unshare(flags); err != nil {
		return fmt.Errorf("cannot make namespaces: %w", err)
	}
	if flags&unix.CLONE_NEWNS == 0 {
		return nil
	}
	// What is mounted on the node from now on appears here too (automounters), and nothing that is mounted here appears there.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("cannot make a mount namespace independent of the node's: %w", err)
	}
	return nil
}

// cover lays an empty folder that anybody in the job may write to over another.
func cover(p *pb.Privacy, name string, i int, dir string, shared bool) error {
	if dir == Shm {
		if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777"); err != nil {
			return fmt.Errorf("cannot make a private %s: %w", dir, err)
		}
		return nil
	}
	from, err := makeOwn(p.GetBase(), name, fmt.Sprint(i), shared)
	if err == nil {
		err = unix.Mount(from, dir, "", unix.MS_BIND, "")
	}
	if err != nil {
		return fmt.Errorf("cannot make a private %s: %w", dir, err)
	}
	return nil
}

// makeOwn makes a folder for a step that anybody in it may write to; shared: it may be there already.
func makeOwn(base, step, name string, shared bool) (string, error) {
	root, err := openBase(base)
	if err != nil {
		return "", err
	}
	defer root.Close()
	own := filepath.Join(step, name)
	if err := root.Mkdir(step, 0o700); err != nil && !errors.Is(err, os.ErrExist) { // nobody gets to it but through the mount
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

// isMount says whether something is mounted there, going by what the kernel lists: a folder that is not, would be mounted over.
func isMount(path string) bool {
	mounts, _ := os.ReadFile("/proc/thread-self/mounts")
	return bytes.Contains(mounts, []byte(" "+path+" "))
}

// Restrict takes from the calling thread what it and its children are not to have.
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

// bound drops all other capabilities from the bounding set, and all from the inheritable one, which a program of root's would get back.
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

// Available is p without what cannot be had on this machine, and why. spool is where the scripts of jobs lie, which must stay in sight.
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

// usable returns where a folder and BasePath really are, when jobs can have the folder for themselves.
func usable(p *pb.Privacy, dir, spool string) (real, base string, err error) {
	scripts, err := filepath.EvalSymlinks(spool)
	if err != nil {
		return "", "", err
	}
	hides := fmt.Errorf("the spool folder %s, with the jobs' scripts, is in it", spool)
	if dir == Shm {
		if within(scripts, dir) {
			return "", "", hides
		}
		return dir, "", nil
	}
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() {
		return "", "", errors.Join(errors.New("it is not a folder on this node"), err)
	}
	if real, err = trusted.Path(dir); err != nil { // what is mounted over it later must be what is looked at here
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
	// With an /etc of their own, jobs could make themselves root by any set-user-ID program.
	if info.Mode()&0o002 == 0 || info.Mode()&os.ModeSticky == 0 {
		return "", "", fmt.Errorf("only a folder that everybody may write to, with the sticky bit as in /tmp, can be private (it has %#o)",
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

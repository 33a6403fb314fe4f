package cgroup

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/fs"
	"github.com/opencontainers/cgroups/fs2"
	"golang.org/x/sys/unix"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// group is one step's folder in track and, for v1, in each hierarchy that limits it.
type group struct {
	root *linuxRoot
	dir  string   // in track
	v1   []string // further folders that the first process must be written to
	mem  string   // folder with the memory controller's files, or empty
	fd   atomic.Int32
}

// Create makes the tracking folder first: mkdir is what decides that the name is fresh.
func (r *linuxRoot) Create(name string, limits *pb.Limits) (Group, error) {
	if !plain(name) {
		return nil, fmt.Errorf("cannot make cgroup %q: not a single plain name", name)
	}
	g := &group{root: r, dir: filepath.Join(r.track, name)}
	g.fd.Store(-1)
	if err := mkdir(g.dir); err != nil {
		if err == unix.EEXIST {
			err = ErrExists
		}
		return nil, fmt.Errorf("cannot make cgroup %s: %w", g.dir, err)
	}
	err := g.limit(name, limits)
	if rules := limits.GetDevices(); err == nil && len(rules) > 0 {
		err = g.closeDevices(name, rules)
	}
	if err == nil && r.layout != Legacy {
		var fd int
		if fd, err = open(g.dir, unix.O_PATH|unix.O_DIRECTORY); err == nil {
			g.fd.Store(int32(fd))
		}
	}
	if err != nil {
		g.Remove()
		return nil, fmt.Errorf("cannot set up cgroup %s: %w", g.dir, err)
	}
	return g, nil
}

func plain(name string) bool {
	return name != "" && name != shelter && name[0] != '.' && !strings.ContainsAny(name, "/\x00\n")
}

// limit applies what is asked for and can be; v1 folders are made only for the controllers that it needs.
func (g *group) limit(name string, l *pb.Limits) error {
	r := g.root
	res := g.resources(l)
	if r.layout == Unified {
		if res.Memory != 0 {
			g.mem = g.dir
		}
		if res.Memory == 0 && res.PidsLimit == nil && res.CpusetCpus == "" && res.CpusetMems == "" {
			return nil
		}
		m, err := fs2.NewManager(&cgroups.Cgroup{Resources: res}, g.dir)
		if err != nil {
			return err
		}
		return m.Set(res)
	}
	if res.Memory != 0 {
		dir, err := g.mkV1(r.memory, name)
		if err != nil {
			return err
		}
		g.mem = dir
		if err := limitMemory(dir, res); err != nil {
			return err
		}
	}
	if res.PidsLimit != nil {
		dir, err := g.mkV1(r.pids, name)
		if err != nil {
			return err
		}
		if err := write(dir, "pids.max", strconv.FormatInt(*res.PidsLimit, 10)); err != nil {
			return err
		}
	}
	if res.CpusetCpus != "" || res.CpusetMems != "" {
		dir, err := g.mkV1(r.cpuset, name)
		if err != nil {
			return err
		}
		if res.CpusetCpus == "" {
			res.CpusetCpus = r.cpus
		}
		if res.CpusetMems == "" {
			res.CpusetMems = readTrim(r.cpuset, "cpuset.mems")
		}
		if err := write(dir, "cpuset.cpus", res.CpusetCpus); err != nil {
			return err
		}
		if res.CpusetMems == "" {
			return nil
		}
		return write(dir, "cpuset.mems", res.CpusetMems)
	}
	return nil
}

// limitMemory is for a group that has no limit yet: that of memory alone must never be above that of memory and swap.
func limitMemory(dir string, res *cgroups.Resources) error {
	if err := write(dir, "memory.limit_in_bytes", strconv.FormatInt(res.Memory, 10)); err != nil || res.MemorySwap == 0 {
		return err
	}
	return write(dir, "memory.memsw.limit_in_bytes", strconv.FormatInt(res.MemorySwap, 10))
}

// mkV1 tolerates a folder that is there: the tracking folder has been fresh, so this one is left over from a crash half-way.
func (g *group) mkV1(base, name string) (string, error) {
	dir := filepath.Join(base, name)
	if err := mkdir(dir); err != nil && err != unix.EEXIST {
		return "", &os.PathError{Op: "mkdir", Path: dir, Err: err}
	}
	g.v1 = append(g.v1, dir)
	return dir, nil
}

// resources drops what this machine does not offer. MemorySwap is memory and swap together, as in cgroup v1.
func (g *group) resources(l *pb.Limits) *cgroups.Resources {
	r, res := g.root, &cgroups.Resources{SkipDevices: true}
	if l == nil {
		return res
	}
	if r.memory != "" && l.MemoryMib > 0 {
		res.Memory = int64(l.MemoryMib) << 20
		if r.swap && l.MemorySwapMib >= l.MemoryMib {
			res.MemorySwap = int64(l.MemorySwapMib) << 20
		}
	}
	if r.pids != "" && l.Pids > 0 {
		n := int64(min(uint64(l.Pids), mostPids()/pidsShare))
		res.PidsLimit = &n
	}
	if r.cpuset != "" {
		res.CpusetCpus = intersect(l.CpusetCpus, r.cpus)
	}
	return res
}

// pidsShare: no step may have more than this part of the processes that the machine can have at all, so that on one where those are few
// (pid_max is 32768 unless an init system raises it) a fork bomb leaves enough to the daemons, and to other jobs.
const pidsShare = 4

// mostPids is how many processes this machine can have. Read each time, as sysctl(8) may change it.
func mostPids() uint64 {
	s, err := readSmall("/proc/sys/kernel", "pid_max")
	if err != nil {
		return math.MaxUint64
	}
	n, err := strconv.ParseUint(strings.TrimSpace(s), 10, 64)
	if err != nil {
		return math.MaxUint64
	}
	return n
}

func (g *group) FD() int { return int(g.fd.Load()) }

func (g *group) Add(pid int, cloned bool) error {
	dirs := g.v1
	if !cloned {
		dirs = append([]string{g.dir}, dirs...)
	}
	for _, dir := range dirs {
		if err := writeProcs(dir, pid); err != nil {
			return fmt.Errorf("cannot put process %d into cgroup %s: %w", pid, dir, err)
		}
	}
	return nil
}

// writeProcs: a process that has just been cloned may be TASK_NEW for a moment, which the kernel answers with EINVAL.
func writeProcs(dir string, pid int) error {
	if err := write(dir, cgroups.CgroupProcesses, strconv.Itoa(pid)); !errors.Is(err, unix.EINVAL) {
		return err
	}
	return cgroups.WriteCgroupProc(dir, pid)
}

func (g *group) procs() ([]int, error) { return cgroups.GetAllPids(g.dir) }

func (g *group) Signal(sig int) error {
	pids, err := g.procs()
	for _, pid := range pids {
		if e := unix.Kill(pid, syscall.Signal(sig)); e != nil && e != unix.ESRCH {
			err = fmt.Errorf("cannot signal process %d: %w", pid, e)
		}
	}
	return err
}

// Kill without cgroup.kill freezes first, so that a fork bomb cannot run ahead of the list.
func (g *group) Kill() error {
	if g.root.kill {
		return write(g.dir, "cgroup.kill", "1")
	}
	ferr := g.Freeze(true)
	err := g.Signal(int(unix.SIGKILL))
	if ferr == nil {
		ferr = g.Freeze(false)
	}
	return errors.Join(err, ferr)
}

func (g *group) Freeze(frozen bool) error {
	state := cgroups.Thawed
	if frozen {
		state = cgroups.Frozen
	}
	if g.root.layout == Legacy {
		return (&fs.FreezerGroup{}).Set(g.dir, &cgroups.Resources{Freezer: state})
	}
	bit := "0"
	if frozen {
		bit = "1"
	}
	return write(g.dir, "cgroup.freeze", bit)
}

// Empty is true once no living process is in the group or below; zombies do not count.
func (g *group) Empty() (bool, error) {
	if g.root.layout == Legacy {
		pids, err := g.procs()
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			return true, nil
		}
		return len(pids) == 0, err
	}
	n, err := readValue(g.dir, "cgroup.events", "populated")
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return true, nil
	}
	return n == 0, err
}

func (g *group) Memory() (rssKiB, vmKiB uint64) {
	pids, _ := g.procs()
	return memory(pids)
}

func (g *group) Usage() Usage {
	var u Usage
	if g.root.layout != Legacy {
		u.UserUsec, u.SystemUsec = cpuStat(readTrim(g.dir, "cpu.stat"))
	}
	if g.mem == "" {
		return u
	}
	events, peak := "memory.oom_control", "memory.max_usage_in_bytes"
	if g.root.layout == Unified {
		events, peak = "memory.events", "memory.peak"
	}
	n, _ := readValue(g.mem, events, "oom_kill")
	u.OOMKills = uint32(n)
	b, _ := strconv.ParseUint(readTrim(g.mem, peak), 10, 64)
	u.PeakMemKiB = b >> 10
	return u
}

func cpuStat(s string) (user, system uint64) {
	for line := range strings.SplitSeq(s, "\n") {
		k, v, _ := strings.Cut(line, " ")
		switch k {
		case "user_usec":
			user, _ = strconv.ParseUint(v, 10, 64)
		case "system_usec":
			system, _ = strconv.ParseUint(v, 10, 64)
			return
		}
	}
	return
}

// Remove leaves the tracking folder to the last: as long as it is there, Reclaim can find the rest.
func (g *group) Remove() error {
	if fd := g.fd.Swap(-1); fd >= 0 {
		closeFD(int(fd))
	}
	var errs []error
	for _, dir := range append(g.v1, g.dir) {
		if err := rmdir(dir); err != nil && err != unix.ENOENT { // a child of the step's own making, or a moment too early
			errs = append(errs, cgroups.RemovePath(dir))
		}
	}
	return errors.Join(errs...)
}

// Reclaim is bounded: a process that does not die within reclaimTimeout (stuck in the kernel) is named in the error.
func (r *linuxRoot) Reclaim(b *pb.Bundle) error {
	if !plain(b.Cgroup) {
		return fmt.Errorf("cannot reclaim cgroup %q: not a single plain name", b.Cgroup)
	}
	g := &group{root: r, dir: filepath.Join(r.track, b.Cgroup)}
	g.fd.Store(-1)
	for _, base := range []string{r.memory, r.pids, r.cpuset, r.devices} {
		if base == "" || base == r.track {
			continue
		}
		if dir := filepath.Join(base, b.Cgroup); exists(dir, "cgroup.procs") {
			g.v1 = append(g.v1, dir)
		}
	}
	if !exists(g.dir, "cgroup.procs") && len(g.v1) == 0 {
		return nil
	}
	if err := killUntilEmpty(g, reclaimTimeout); err != nil {
		return fmt.Errorf("cannot reclaim cgroup %s: %w", g.dir, err)
	}
	return g.Remove()
}

const reclaimTimeout = 10 * time.Second

// killUntilEmpty repeats the kill, as without cgroup.kill a fork may escape one round.
func killUntilEmpty(g Group, timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		empty, err := g.Empty()
		if err == nil && empty {
			return nil
		}
		if err == nil {
			err = g.Kill()
		}
		if time.Now().After(deadline) {
			return errors.Join(fmt.Errorf("still processes in it after %v", timeout), err)
		}
		time.Sleep(pause)
	}
}

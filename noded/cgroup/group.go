package cgroup

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
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

// group is the directory of an allocation or a step in track and, for v1, in each hierarchy with a limit.
type group struct {
	root *linuxRoot
	dir  string   // in track
	own  string   // where its processes are: dir, or for an allocation a subdirectory beside those of the steps
	v1   []string // other directories of its own, into which the first process must be written
	join []string // the same of the step's allocation
	mem  string   // directory with the memory controller's files, or empty
	fd   atomic.Int32

	adopted atomic.Bool // there are guests, or may be
}

// leaf is the directory of an allocation's own processes (its batch script's). On v2 a group with processes cannot enable
// controllers for its children, and in all layouts actions on the script must not affect the steps. Rejected: creating it with
// the first step, because processes would have to be moved while they fork.
const leaf = "batch"

// Create makes the tracking directory first: its mkdir decides whether the name is new.
func (r *linuxRoot) Create(name string, limits *pb.Limits) (Group, error) {
	if !named(name) {
		return nil, fmt.Errorf("cannot make cgroup %q: not a single plain name, nor that of a step in one", name)
	}
	r.reached.Do(r.reach)
	g := r.group(name)
	if err := mkdir(g.dir); err != nil {
		if err == unix.EEXIST {
			err = ErrExists
		}
		return nil, fmt.Errorf("cannot make cgroup %s: %w", g.dir, err)
	}
	err := g.limit(name, limits)
	if err == nil {
		err = g.closeDevices(name, limits.GetDevices())
	}
	if err == nil && g.own != g.dir {
		err = mkdir(g.own)
	}
	if err == nil && r.layout != Legacy {
		var fd int
		if fd, err = open(g.own, unix.O_PATH|unix.O_DIRECTORY); err == nil {
			g.fd.Store(int32(fd))
		}
	}
	if err != nil {
		g.Remove()
		return nil, fmt.Errorf("cannot set up cgroup %s: %w", g.dir, err)
	}
	return g, nil
}

func (r *linuxRoot) group(name string) *group {
	g := &group{root: r, dir: filepath.Join(r.track, name)}
	g.own = g.dir
	if allocation(name) == "" {
		g.own += "/" + leaf
	}
	g.fd.Store(-1)
	return g
}

// named reports whether the name is that of an allocation's group, or of a step's inside one.
func named(name string) bool {
	if in := allocation(name); in != "" {
		return plain(in) && isStep(name[len(in)+1:])
	}
	return plain(name)
}

// allocation returns the group that contains a step's; empty: it is an allocation itself.
func allocation(name string) string {
	in, _, nested := strings.Cut(name, "/")
	if !nested {
		return ""
	}
	return in
}

// isStep reports whether n is "step_" and a number.
func isStep(name string) bool {
	n, ok := strings.CutPrefix(name, "step_")
	return ok && n != "" && strings.Trim(n, "0123456789") == ""
}

func plain(name string) bool {
	return name != "" && name[0] != '.' && !strings.ContainsAny(name, "/\x00\n")
}

// limit applies the requested limits that are possible. v1 directories are made only for controllers that need them.
func (g *group) limit(name string, l *pb.Limits) error {
	r := g.root
	res := g.resources(l)
	if r.layout == Unified {
		return g.limitUnified(name, res)
	}
	in := allocation(name)
	// A step has its own memory directory wherever its allocation has one, to attribute OOM kills.
	if res.Memory != 0 || in != "" && r.memory != "" && exists(filepath.Join(r.memory, in), cgroups.CgroupProcesses) {
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
	} else {
		g.joinV1(r.pids, in)
	}
	if res.CpusetCpus != "" || res.CpusetMems != "" {
		return g.limitCPUs(name, res)
	}
	g.joinV1(r.cpuset, in)
	return nil
}

func (g *group) limitUnified(name string, res *cgroups.Resources) error {
	r := g.root
	if in := allocation(name); in != "" {
		r.enable(filepath.Join(r.track, in))
		if r.memory != "" {
			g.mem = g.dir // also without a limit: it attributes OOM kills
		}
	}
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

func (g *group) limitCPUs(name string, res *cgroups.Resources) error {
	dir, err := g.mkV1(g.root.cpuset, name)
	if err != nil {
		return err
	}
	if res.CpusetCpus == "" {
		res.CpusetCpus = g.root.cpus
	}
	if res.CpusetMems == "" {
		res.CpusetMems = readTrim(filepath.Dir(dir), "cpuset.mems")
	}
	if err := write(dir, "cpuset.cpus", res.CpusetCpus); err != nil {
		return err
	}
	if res.CpusetMems == "" {
		return nil
	}
	return write(dir, "cpuset.mems", res.CpusetMems)
}

// limitMemory sets limits in a new group: the memory limit must never exceed that of memory and swap.
func limitMemory(dir string, res *cgroups.Resources) error {
	if res.Memory == 0 {
		return nil
	}
	if err := write(dir, "memory.limit_in_bytes", strconv.FormatInt(res.Memory, 10)); err != nil || res.MemorySwap == 0 {
		return err
	}
	return write(dir, "memory.memsw.limit_in_bytes", strconv.FormatInt(res.MemorySwap, 10))
}

// mkV1 tolerates an existing directory: the tracking directory was new, so this one is a leftover of a crash.
func (g *group) mkV1(base, name string) (string, error) {
	dir := g.root.inV1(base, name)
	if err := mkdir(dir); err != nil && err != unix.EEXIST {
		return "", &os.PathError{Op: "mkdir", Path: dir, Err: err}
	}
	g.v1 = append(g.v1, dir)
	return dir, nil
}

// inV1 returns a group's directory in a v1 hierarchy. That of a step is inside its allocation's only if that one exists, which is
// if it has a limit.
func (r *linuxRoot) inV1(base, name string) string {
	if in := allocation(name); in != "" && !exists(filepath.Join(base, in), cgroups.CgroupProcesses) {
		name = strings.ReplaceAll(name, "/", ".")
	}
	return filepath.Join(base, name)
}

// joinV1 puts a step without a limit of its own under its allocation's.
func (g *group) joinV1(base, in string) {
	if dir := filepath.Join(base, in); base != "" && in != "" && exists(dir, cgroups.CgroupProcesses) {
		g.join = append(g.join, dir)
	}
}

// resources drops limits that this machine does not support. MemorySwap is the sum of memory and swap, as in cgroup v1.
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
		n := int64(min(uint64(l.Pids), PidsShare()))
		res.PidsLimit = &n
	}
	if r.cpuset != "" {
		res.CpusetCpus = intersect(l.CpusetCpus, r.cpus)
	}
	return res
}

// PidsShare is the limit of processes and threads for a job, and for all jobs of a user together, on this machine: a quarter of
// pid_max. All jobs of a node may have three such shares, so that fork bombs leave one to the daemons, even if pid_max is 32768.
func PidsShare() uint64 { return mostPids() / 4 }

// boundJobs limits the processes of all jobs. It is inexact on a machine with several nodes, which is for tests.
func (r *linuxRoot) boundJobs() {
	if r.pids == "" {
		return
	}
	if err := write(r.pids, "pids.max", strconv.FormatUint(min(3*PidsShare(), 3<<20), 10)); err != nil {
		r.notes = append(r.notes, "the processes of all jobs together are not limited: "+err.Error())
	}
}

// mostPids returns the limit of processes on this machine. It is read each time, as sysctl(8) may change it.
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

// limiting returns the v1 directories with the group's limits.
func (g *group) limiting() []string { return append(g.v1[:len(g.v1):len(g.v1)], g.join...) }

func (g *group) Add(pid int) error {
	for _, dir := range append([]string{g.own}, g.limiting()...) {
		if err := writeProcs(dir, pid); err != nil {
			return fmt.Errorf("cannot put process %d into cgroup %s: %w", pid, dir, err)
		}
	}
	return nil
}

func (g *group) Enter() error {
	g.root.homes()
	for _, dir := range g.limiting() {
		if err := write(dir, "tasks", "0"); err != nil {
			return fmt.Errorf("cannot enter cgroup %s: %w", dir, err)
		}
	}
	return nil
}

func (g *group) Leave() error {
	for base, home := range g.root.homes() {
		inside := func(dir string) bool { return strings.HasPrefix(dir, base+"/") }
		if !slices.ContainsFunc(g.limiting(), inside) {
			continue
		}
		if err := write(home, "tasks", "0"); err != nil {
			return fmt.Errorf("cannot leave the cgroups of %s for %s: %w", g.dir, home, err)
		}
	}
	return nil
}

// homes returns, for each v1 directory of the node, where a thread was in that hierarchy before the first one entered a group.
func (r *linuxRoot) homes() map[string]string {
	r.foundHome.Do(func() {
		own, _ := os.ReadFile("/proc/thread-self/cgroup")
		r.home = map[string]string{}
		for _, base := range []string{r.memory, r.pids, r.cpuset, r.devices} {
			mount := strings.TrimSuffix(base, "/"+r.name)
			r.home[base] = base // if the kernel's path is not below the mount, as in some containers
			for line := range strings.Lines(string(own)) {
				_, at, _ := strings.Cut(strings.TrimSpace(line), ":")
				controller, dir, _ := strings.Cut(at, ":")
				if controller == filepath.Base(mount) && exists(mount+dir, "tasks") {
					r.home[base] = mount + dir
				}
			}
		}
		delete(r.home, "")
	})
	return r.home
}

// writeProcs retries on EINVAL: a process that was just cloned may be TASK_NEW for a moment.
func writeProcs(dir string, pid int) error {
	if err := write(dir, cgroups.CgroupProcesses, strconv.Itoa(pid)); !errors.Is(err, unix.EINVAL) {
		return err
	}
	return cgroups.WriteCgroupProc(dir, pid)
}

func (g *group) Signal(sig int) error { return signalIn(g.own, sig) }

func signalIn(dir string, sig int) error {
	pids, err := cgroups.GetAllPids(dir)
	for _, pid := range pids {
		if e := unix.Kill(pid, syscall.Signal(sig)); e != nil && e != unix.ESRCH {
			err = fmt.Errorf("cannot signal process %d: %w", pid, e)
		}
	}
	return err
}

func (g *group) Kill() error { return g.killIn(g.dir) }

func (g *group) KillOwn() error { return g.killIn(g.own) }

// killIn without cgroup.kill freezes first, so that a fork bomb cannot outrun the list.
func (g *group) killIn(dir string) error {
	if g.root.kill {
		return write(dir, "cgroup.kill", "1")
	}
	ferr := g.freeze(dir, true)
	err := signalIn(dir, int(unix.SIGKILL))
	if terr := g.thaw(dir); ferr == nil {
		ferr = terr
	}
	return errors.Join(err, ferr)
}

// thaw thaws a group that is to die, and its children, which may have been frozen separately.
func (g *group) thaw(dir string) error {
	err := g.freeze(dir, false)
	below, _ := os.ReadDir(dir)
	for _, d := range below {
		if d.IsDir() {
			err = errors.Join(err, ignoreGone(g.thaw(dir+"/"+d.Name())))
		}
	}
	return err
}

func ignoreGone(err error) error {
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// freezeTime allows for processes that take long to stop on a busy machine: the freezer of cgroup v1 gives up after a fraction of
// a second.
const freezeTime = 10 * time.Second

func (g *group) Freeze(frozen bool) (err error) {
	for _, dir := range g.leaves() {
		err = errors.Join(err, g.freezeWithin(freezeTime, dir, frozen))
	}
	return err
}

func (g *group) freezeWithin(d time.Duration, dir string, frozen bool) error {
	for end := time.Now().Add(d); ; {
		err := g.freeze(dir, frozen)
		if file := (*os.PathError)(nil); err == nil || errors.As(err, &file) || time.Now().After(end) {
			return err
		}
	}
}

func (g *group) freeze(dir string, frozen bool) error {
	state := cgroups.Thawed
	if frozen {
		state = cgroups.Frozen
	}
	if g.root.layout == Legacy {
		return (&fs.FreezerGroup{}).Set(dir, &cgroups.Resources{Freezer: state})
	}
	bit := "0"
	if frozen {
		bit = "1"
	}
	return write(dir, "cgroup.freeze", bit)
}

// Empty reports whether no living process is in the group or below; zombies do not count.
func (g *group) Empty() (bool, error) {
	if g.root.layout == Legacy {
		pids, err := cgroups.GetAllPids(g.dir)
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
	var pids []int
	for _, dir := range g.leaves() {
		in, _ := cgroups.GetAllPids(dir)
		pids = append(pids, in...)
	}
	return memory(pids)
}

func (g *group) Usage() Usage {
	var u Usage
	if g.root.layout != Legacy {
		for _, dir := range g.leaves() {
			user, system := cpuStat(readTrim(dir, "cpu.stat"))
			u.UserUsec, u.SystemUsec = u.UserUsec+user, u.SystemUsec+system
		}
	}
	if g.mem == "" {
		return u
	}
	events := "memory.oom_control"
	if g.root.layout == Unified {
		events = "memory.events"
	}
	n, _ := readValue(g.mem, events, "oom_kill")
	// Without kills in steps, which the memory controller adds to the parent's count.
	if n > 0 && g.root.layout == Unified && g.own != g.dir {
		if local, err := readValue(g.mem, "memory.events.local", "oom_kill"); err == nil {
			below, _ := readValue(g.own, events, "oom_kill")
			n = local + below
		}
	}
	u.OOMKills = uint32(n)
	return u
}

func (g *group) PeakKiB() uint64 {
	if g.mem == "" {
		return 0
	}
	peak := "memory.max_usage_in_bytes"
	if g.root.layout == Unified {
		peak = "memory.peak"
	}
	b, _ := strconv.ParseUint(readTrim(g.mem, peak), 10, 64)
	return b >> 10
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

// Remove removes the tracking directory last: as long as it exists, Reclaim can find the rest.
func (g *group) Remove() error {
	if fd := g.fd.Swap(-1); fd >= 0 {
		closeFD(int(fd))
	}
	var errs []error
	dirs := append(g.v1[:len(g.v1):len(g.v1)], g.dir)
	if g.own != g.dir {
		_ = rmdir(g.own)
	}
	g.removeGuests()
	for _, dir := range dirs {
		if err := rmdir(dir); err != nil && err != unix.ENOENT { // the step created a child, or a process is still exiting
			errs = append(errs, cgroups.RemovePath(dir))
		}
	}
	return errors.Join(errs...)
}

// Reclaim is bounded: its error names a process that does not die within reclaimTimeout (stuck in the kernel).
func (r *linuxRoot) Reclaim(b *pb.Bundle) error {
	if !named(b.Cgroup) {
		return fmt.Errorf("cannot reclaim cgroup %q: not a single plain name, nor that of a step in one", b.Cgroup)
	}
	g := r.group(b.Cgroup)
	g.adopted.Store(true) // the shim that knew is gone
	for _, base := range []string{r.memory, r.pids, r.cpuset, r.devices} {
		if base == "" || base == r.track {
			continue
		}
		if dir := r.inV1(base, b.Cgroup); exists(dir, cgroups.CgroupProcesses) {
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

// killUntilEmpty repeats the kill, because without cgroup.kill a fork may escape one round.
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

package cgroup

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// tree is the Root without cgroups.
type tree struct {
	notes []string
	why   error
}

func newTree(why error) Root {
	return &tree{why: why,
		notes: []string{fmt.Sprintf("no cgroups, jobs are tracked as process trees and have no memory, CPU or process limits: %v", why)}}
}

func (t *tree) Layout() Layout    { return Tree }
func (t *tree) Notes() []string   { return t.notes }
func (t *tree) Shelter(int) error { return nil }
func (t *tree) Tidy()             {}

// Create returns the group of all descendants of this process: a shim serves one step at a time and is a subreaper, so they
// belong to its step.
func (t *tree) Create(_ string, l *pb.Limits) (Group, error) {
	if len(l.GetDevices()) > 0 {
		return nil, t.Devices()
	}
	return treeGroup{os.Getpid()}, nil
}

func (t *tree) Devices() error {
	return fmt.Errorf("cannot restrict jobs' access to devices without cgroups: %w", t.why)
}

type treeGroup struct{ root int }

func (treeGroup) FD() int         { return -1 }
func (treeGroup) Enter() error    { return nil }
func (treeGroup) Leave() error    { return nil }
func (treeGroup) Add(int) error   { return nil }
func (treeGroup) Usage() Usage    { return Usage{} }
func (treeGroup) PeakKiB() uint64 { return 0 }
func (treeGroup) Remove() error   { return nil }
func (g treeGroup) Memory() (rssKiB, vmKiB uint64) {
	return memory(descendants(g.root))
}
func (g treeGroup) Empty() (bool, error) {
	return len(living(descendants(g.root))) == 0, nil
}

func (g treeGroup) Signal(sig int) error { return signalAll(descendants(g.root), unix.Signal(sig)) }

// Kill also kills by process group: the kernel signals all members of one at once, with no fork in between, so a chain of
// processes that fork and exit cannot outrun the list. Bounded: the caller repeats it until Empty.
func (g treeGroup) Kill() error {
	pids := descendants(g.root)
	signalAll(pids, unix.SIGSTOP)
	own := unix.Getpgrp()
	done := map[int]bool{own: true}
	for _, pid := range pids {
		if pgrp := stat(pid).pgrp; pgrp > 1 && !done[pgrp] {
			done[pgrp] = true
			_ = unix.Kill(-pgrp, unix.SIGKILL)
		}
	}
	return signalAll(descendants(g.root), unix.SIGKILL)
}

func (g treeGroup) KillOwn() error { return g.Kill() }

func (g treeGroup) Freeze(frozen bool) error {
	if frozen {
		return g.Signal(int(unix.SIGSTOP))
	}
	return g.Signal(int(unix.SIGCONT))
}

// Reclaim looks for leftovers of a dead shim: processes of the step's user whose environment names the same job on the same node.
func (t *tree) Reclaim(b *pb.Bundle) error {
	marks := stepMarks(b.Env)
	if len(marks) == 0 {
		return nil
	}
	deadline := time.Now().Add(reclaimTimeout)
	for {
		pids := withEnv(b.Uid, marks)
		if len(pids) == 0 {
			return nil
		}
		err := signalAll(pids, unix.SIGKILL)
		if time.Now().After(deadline) {
			return fmt.Errorf("cannot kill the processes %v left by job %d: %v", pids, b.Key.GetJobId(), err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// stepMarks returns the variables that identify a job on a node of a cluster; none without a job id.
func stepMarks(env []string) [][]byte {
	var marks [][]byte
	hasID := false
	for _, kv := range env {
		switch name, _, _ := strings.Cut(kv, "="); name {
		case "SLURM_JOB_ID":
			hasID = true
			marks = append(marks, []byte(kv))
		case "SLURMD_NODENAME", "SLURM_CLUSTER_NAME", "SLURM_RESTART_COUNT":
			marks = append(marks, []byte(kv))
		}
	}
	if !hasID {
		return nil
	}
	return marks
}

func withEnv(uid uint32, marks [][]byte) (found []int) {
	for _, pid := range allPids() {
		dir := "/proc/" + strconv.Itoa(pid)
		var st unix.Stat_t
		if unix.Stat(dir, &st) != nil || st.Uid != uid {
			continue
		}
		env, err := os.ReadFile(dir + "/environ")
		if err != nil {
			continue
		}
		vars := bytes.Split(env, []byte{0})
		if !slices.ContainsFunc(marks, func(m []byte) bool {
			return !slices.ContainsFunc(vars, func(v []byte) bool { return bytes.Equal(v, m) })
		}) {
			found = append(found, pid)
		}
	}
	return found
}

// living removes zombies from the list.
func living(pids []int) []int {
	return slices.DeleteFunc(pids, func(pid int) bool {
		state := stat(pid).state
		return state == 'Z' || state == 'X' || state == 0
	})
}

// descendants lists all descendants of root by one pass over /proc. It includes zombies: a thread group whose first thread has
// ended looks like one and lives on.
func descendants(root int) (pids []int) {
	children := map[int][]int{}
	for _, pid := range allPids() {
		if ppid := stat(pid).ppid; ppid > 0 {
			children[ppid] = append(children[ppid], pid)
		}
	}
	for queue := []int{root}; len(queue) > 0; queue = queue[1:] {
		pids = append(pids, children[queue[0]]...)
		queue = append(queue, children[queue[0]]...)
	}
	return pids
}

// procStat holds the needed fields of /proc/<pid>/stat; zero if the process is gone.
type procStat struct {
	state      byte
	ppid, pgrp int
}

// stat reads procStat. The name in parentheses may contain anything, so the fields count from the last ')'.
func stat(pid int) (st procStat) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return st
	}
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 3 {
		return st
	}
	st.state = f[0][0]
	st.ppid, _ = strconv.Atoi(string(f[1]))
	st.pgrp, _ = strconv.Atoi(string(f[2]))
	return st
}

func allPids() (pids []int) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	for _, n := range names {
		if pid, err := strconv.Atoi(n); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

func signalAll(pids []int, sig unix.Signal) error {
	var err error
	for _, pid := range pids {
		if e := unix.Kill(pid, sig); e != nil && e != unix.ESRCH {
			err = fmt.Errorf("cannot signal process %d: %w", pid, e)
		}
	}
	return err
}

// memory sums resident and virtual pages; shared pages count in each process, as in Slurm's jobacct_gather/linux.
func memory(pids []int) (rssKiB, vmKiB uint64) {
	page := uint64(os.Getpagesize()) >> 10
	for _, pid := range pids {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
		if err != nil {
			continue
		}
		if f := strings.Fields(string(b)); len(f) > 1 {
			vm, _ := strconv.ParseUint(f[0], 10, 64)
			rss, _ := strconv.ParseUint(f[1], 10, 64)
			rssKiB, vmKiB = rssKiB+rss*page, vmKiB+vm*page
		}
	}
	return rssKiB, vmKiB
}

// KillDescendants kills every descendant of this process, whatever cgroup it is in.
func KillDescendants() error { return treeGroup{os.Getpid()}.Kill() }

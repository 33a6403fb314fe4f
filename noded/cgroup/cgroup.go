// Package cgroup gives each step attempt a control group of its own. It sets limits, signals and kills everything in it, tells
// whether it is empty, and reads its resource use. How high the limits are is decided in noded/bundle.
//
// Open chooses one of four layouts (Root.Layout):
//
//	Unified  cgroup v2 alone: everything in one directory.
//	Hybrid   v1 controllers beside a v2 mount without controllers: the v2 directory places (CLONE_INTO_CGROUP), kills (cgroup.kill),
//	         freezes and tells when the group is empty; memory, pids and cpuset come from v1, and only if a limit is requested.
//	         A process has its limits because the thread that creates it is in their directories at that moment.
//	Legacy   v1 alone: the freezer hierarchy places, freezes and lists.
//	Tree     no cgroups (an ordinary user, a sealed container): the descendants of the shim, which is their subreaper. No limits, and
//	         a job that outlives its shim is found by its environment.
//
// The group of an srun step, "job_7.1/step_0", is inside that of its allocation, "job_7.1", and so is under its limits, too. The
// allocation's own processes are in a directory beside those of its steps, and so are adopted processes (sshd sessions). Signal,
// Freeze, Memory and Usage of an allocation's group concern its own and the adopted processes; Kill, Empty and Remove concern
// everything in it.
//
// Each attempt has a new group whose name is never reused: after cgroup.kill a process cloned into the group would die at once.
package cgroup

import (
	"errors"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Layout is the kind of hierarchy in use.
type Layout int

// The layouts, see the package comment.
const (
	Unified Layout = iota
	Hybrid
	Legacy
	Tree
)

func (l Layout) String() string {
	return [...]string{"cgroup v2", "cgroup v1 with v2 mount", "cgroup v1", "process tree"}[l]
}

// ErrExists reports that the name was used before. Attempts never share a group.
var ErrExists = errors.New("cgroup exists already")

// Root is the directory below which a node keeps the groups of its steps.
type Root interface {
	Layout() Layout
	// Create makes a new group with these limits (nil: none). The name is plain, or that of a step inside an existing group. A
	// limit whose controller the machine lacks is skipped, and Notes says so.
	Create(name string, limits *pb.Limits) (Group, error)
	// Reclaim kills the remaining processes of a step whose shim is gone, waits for their end, and removes its group. It returns
	// nil if there was none.
	Reclaim(b *pb.Bundle) error
	// Devices returns nil if device rules work here, else why not; then Create fails if there are any.
	Devices() error
	// Notes are remarks for the log about limitations of this machine; constant after Open.
	Notes() []string
	// Shelter moves a process that must survive the node daemon (a shim) out of that daemon's unit.
	Shelter(pid int) error
	// Tidy removes the node's own directories if they are empty, when the node is taken down.
	Tidy()
}

// Group holds one step attempt. Methods may be called from any goroutine.
type Group interface {
	// FD is an open directory for CLONE_INTO_CGROUP, or -1. It stays valid until Remove. A process that a thread clones with it
	// between Enter and Leave starts in all directories of the group.
	FD() int
	// Enter moves the calling thread, which must be locked, into the directories that FD does not cover. The kernel lets a thread
	// move itself without a wait, while moving a process costs an RCU grace period, 5 to 15 ms.
	Enter() error
	// Leave undoes Enter, even if Enter failed. If Leave fails, the thread must not be used again.
	Leave() error
	// Add moves the first process into the group if there is no FD. It must be held before its first instruction.
	Add(pid int) error
	// Adopt moves a running process into the group of an allocation; its future children are in it, too. Freeze, Memory and Usage
	// include these processes; Signal and KillOwn do not.
	Adopt(pid int) error
	// SignalAdopted sends sig to the adopted processes.
	SignalAdopted(sig int) error
	// Signal sends sig once to every process in the group, but not to those of its steps, nor to adopted ones.
	Signal(sig int) error
	// Kill sends SIGKILL to every process in the group, including frozen ones, those being forked, and those of its steps.
	Kill() error
	// KillOwn is Kill without steps and adopted processes.
	KillOwn() error
	Freeze(frozen bool) error
	Empty() (bool, error)
	// Memory returns the current resident and virtual memory of all processes.
	Memory() (rssKiB, vmKiB uint64)
	// Usage is read once the group is empty.
	Usage() Usage
	// PeakKiB is the memory controller's high-water mark, page cache included; 0: unknown.
	PeakKiB() uint64
	// Remove deletes the group, which must be empty. A group that is gone is not an error.
	Remove() error
}

// Usage is what a group consumed. Zero means unknown.
type Usage struct {
	UserUsec, SystemUsec uint64
	OOMKills             uint32
}

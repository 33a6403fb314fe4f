// Package cgroup gives each step attempt a control group of its own: limits, signals and kills for everything in it,
// whether it is empty, and its resource use. How high the limits are is decided in noded/bundle.
//
// Open chooses one of four layouts (Root.Layout says which):
//
//	Unified  cgroup v2 alone: everything in one directory.
//	Hybrid   v1 controllers beside a v2 mount without controllers: the v2 directory places (CLONE_INTO_CGROUP), kills (cgroup.kill),
//	         freezes and tells when the group is empty; memory, pids and cpuset come from v1, and only where a limit is asked for.
//	         A process has its limits because the thread that makes it is in their directories at that moment.
//	Legacy   v1 alone: the freezer hierarchy places, freezes and lists.
//	Tree     no cgroups (an ordinary user, a sealed container): the descendants of the shim, which is their subreaper. No limits, and
//	         a job that outlives its shim is found by its environment.
//
// The group of a step of srun, "job_7.1/step_0", lies in that of its allocation, "job_7.1", and so is under its limits
// too. The processes of the allocation itself are in a directory beside those of its steps, and so are processes that
// were adopted into it (sessions of sshd). Signal, Freeze, Memory and Usage of an allocation's group concern its own
// processes and the adopted ones; Kill, Empty and Remove concern everything in it.
//
// A group is made once for each attempt and never again under the same name: after cgroup.kill a process cloned into the
// group would die at once.
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

// ErrExists: the name was used before. Attempts never share a group.
var ErrExists = errors.New("cgroup exists already")

// Root is the folder below which a node keeps the groups of its steps.
type Root interface {
	Layout() Layout
	// Create makes a fresh group with these limits (nil: none); the name is plain, or that of a step in a group that is there.
	// A limit whose controller the machine does not offer is skipped, and Notes says so.
	Create(name string, limits *pb.Limits) (Group, error)
	// Reclaim kills whatever is left of a step whose shim is gone, waits until nothing is, and removes its group. It returns
	// nil when there was nothing.
	Reclaim(b *pb.Bundle) error
	// Devices is nil when limits of devices can be applied here, else why not: Create fails then when there are any.
	Devices() error
	// Notes are remarks for the log about what this machine cannot do; constant after Open.
	Notes() []string
	// Shelter moves a process that must survive the node daemon (a shim) out of that daemon's unit.
	Shelter(pid int) error
	// Tidy removes the node's own folders as far as they are empty, when the node is taken down.
	Tidy()
}

// Group holds one step attempt. Methods may be called from any goroutine.
type Group interface {
	// FD is an open folder for CLONE_INTO_CGROUP, or -1. It stays valid until Remove. What a thread clones with it between Enter and
	// Leave begins in all folders of the group.
	FD() int
	// Enter moves the calling thread, which must be locked, into the folders in which FD does not place. For a thread that moves
	// itself the kernel waits for nothing, while moving a process costs it a grace period of RCU, 5 to 15 ms.
	Enter() error
	// Leave ends what Enter began, also where that failed. A thread that it fails for must not be used again.
	Leave() error
	// Add moves the first process into the group where there is no FD. It must be held before its first instruction.
	Add(pid int) error
	// Adopt moves a process that runs into the group of an allocation, and what it forks from then on is in it too. Freeze, Memory
	// and Usage are about these processes as well; Signal and KillOwn are not.
	Adopt(pid int) error
	// SignalAdopted sends sig to what was adopted.
	SignalAdopted(sig int) error
	// Signal sends sig to every process in the group, once; not to those of its steps, nor to what was adopted.
	Signal(sig int) error
	// Kill sends SIGKILL to every process in the group, also frozen ones and those being forked, and those of its steps.
	Kill() error
	// KillOwn is Kill without the steps and what was adopted.
	KillOwn() error
	Freeze(frozen bool) error
	Empty() (bool, error)
	// Memory is the resident and the virtual memory of all processes now.
	Memory() (rssKiB, vmKiB uint64)
	// Usage is read once the group is empty.
	Usage() Usage
	// PeakKiB is the memory controller's high-water mark, page cache included; 0: unknown.
	PeakKiB() uint64
	// Remove deletes the group, which must be empty; it is no error when it is gone.
	Remove() error
}

// Usage is what a group consumed. Zero means unknown.
type Usage struct {
	UserUsec, SystemUsec uint64
	OOMKills             uint32
}

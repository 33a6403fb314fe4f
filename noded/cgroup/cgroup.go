// Package cgroup gives each step attempt a control group of its own: limits on it, signals and kills for all that is in it,
// knowledge of when it is empty, and what it used.
//
// Four layouts, chosen once by Open (Root.Layout says which):
//
//	Unified  cgroup v2 alone: everything in one folder.
//	Hybrid   v1 controllers beside a v2 mount without controllers: the v2 folder places (CLONE_INTO_CGROUP), kills (cgroup.kill),
//	         freezes and tells when the group is empty; memory, pids and cpuset come from v1, and only where a limit is asked for.
//	Legacy   v1 alone: the freezer hierarchy places, freezes and lists.
//	Tree     no cgroup can be had (an ordinary user, a sealed container): the descendants of the shim, which is their
//	         subreaper. No limits, and a job that outlives its shim is found by its environment.
//
// A group is made once per attempt and never again under the same name: after cgroup.kill a process cloned into the group
// would die at once.
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
	// Create makes a fresh group with these limits (nil: none). A limit whose controller the machine does not offer is skipped,
	// and Notes says so.
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
	// FD is an open folder for CLONE_INTO_CGROUP, or -1. It stays valid until Remove.
	FD() int
	// Add places the first process, which must be held before its first instruction: cloned says that it was started with FD.
	Add(pid int, cloned bool) error
	// Signal sends sig to every process in the group, once.
	Signal(sig int) error
	// Kill sends SIGKILL to every process in the group, also frozen ones and those being forked.
	Kill() error
	Freeze(frozen bool) error
	Empty() (bool, error)
	// Memory is the resident and the virtual memory of all processes now.
	Memory() (rssKiB, vmKiB uint64)
	// Usage is read once the group is empty.
	Usage() Usage
	// Remove deletes the group, which must be empty; it is no error when it is gone.
	Remove() error
}

// Usage is what a group consumed. Zero means unknown.
type Usage struct {
	UserUsec, SystemUsec uint64
	PeakMemKiB           uint64 // memory controller's high-water mark: page cache included
	OOMKills             uint32
}

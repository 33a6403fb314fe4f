package state

import (
	"sync"

	"github.com/sluice-hpc/sluice/internal/passwd"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// layout is shared by successive Views. It gives every layout a number of its own, also those of batches that are refused, and keeps
// what has been worked out of the last one that was asked for.
type layout struct {
	mu      sync.Mutex
	last    uint64
	of      uint64 // which layout derived belongs to
	derived any
	usersOf uint64 // which layout users belongs to; 0: none
	users   Users
}

// Users says which users it matters for on which nodes a job is, because some node refuses their jobs by its own policy.
type Users struct {
	Root  bool
	Below uint32 // users other than root whose uid is one of the system (passwd.System), where others begin with this; 0: none
}

// mostBelow bounds it, whatever a node says: each such user's requests are different ones for the scheduler.
const mostBelow = 1 << 16

// Low is what tells a user from others for the scheduler (sched.Request): 0 when every node runs the user's jobs, else the uid plus one.
func (u Users) Low(uid uint32) uint32 {
	if uid == 0 && u.Root || uid > 0 && passwd.System(uid, u.Below) {
		return uid + 1
	}
	return 0
}

// Users works that out of the view's nodes, once for each layout. Any goroutine may call it.
func (v *View) Users() Users {
	l := v.layout
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.usersOf == 0 || l.usersOf != v.Layout {
		l.users, l.usersOf = Users{}, v.Layout
		for _, n := range v.Nodes() {
			l.users.Root = l.users.Root || n.RefusesRoot
			l.users.Below = max(l.users.Below, min(n.RefusesBelow, mostBelow))
		}
	}
	return l.users
}

// relayout is called by whatever changes what requests are judged by.
func (tx *Tx) relayout() {
	l := tx.next.layout
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	tx.next.Layout = l.last
}

// restructure notes that nodes, partitions, reservations or settings changed, so that everything has to be looked at again.
func (tx *Tx) restructure() {
	tx.structure = true
	tx.relayout()
}

// Derived gives what make makes of the view's layout (it must look at nothing else), and keeps it until another layout is asked for.
// There is one user of it, ctld/feasible. Any goroutine may call it.
func (v *View) Derived(make func(*View) any) any {
	l := v.layout
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.derived == nil || l.of != v.Layout {
		l.derived, l.of = make(v), v.Layout
	}
	return l.derived
}

// sameLayout reports whether a node can hold the same jobs as before, were it up and empty.
func sameLayout(a, b *Node) bool {
	x, y := a.NodeRecord, b.NodeRecord
	return a.Inv == b.Inv && (x.State == pb.NodeState_NODE_FUTURE) == (y.State == pb.NodeState_NODE_FUTURE) &&
		(x == y || x.Cpus == y.Cpus && x.Sockets == y.Sockets && x.Cores == y.Cores && x.Threads == y.Threads &&
			x.RealMemoryMib == y.RealMemoryMib &&
			x.MemSpecMib == y.MemSpecMib && x.TmpDiskMib == y.TmpDiskMib && x.Features == y.Features &&
			x.ActiveFeatures == y.ActiveFeatures && x.RefusesRoot == y.RefusesRoot && x.RefusesBelow == y.RefusesBelow)
}

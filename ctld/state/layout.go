package state

import (
	"sync"

	"github.com/sluice-hpc/sluice/internal/passwd"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// layout is shared by successive Views. It gives every layout a number of its own, those of refused batches included, and keeps the values
// derived from the layout that was asked for last.
type layout struct {
	mu      sync.Mutex
	last    uint64
	of      uint64 // the layout of derived
	derived any
	usersOf uint64 // the layout of users; 0: none
	users   Users
}

// Users tells for which users the choice of nodes matters, because the policy of some node refuses their jobs.
type Users struct {
	Root  bool
	Below uint32 // system users other than root (passwd.System), for the highest uid at which some node's other users begin; 0: none
}

// mostBelow bounds Users.Below, whatever nodes report: the scheduler must treat the requests of each such user as different.
const mostBelow = 1 << 16

// Low distinguishes a user's requests for the scheduler (sched.Request): 0 when every node runs the user's jobs, else the uid plus one.
func (u Users) Low(uid uint32) uint32 {
	if uid == 0 && u.Root || uid > 0 && passwd.System(uid, u.Below) {
		return uid + 1
	}
	return 0
}

// Users computes the users that some node refuses, once for each layout. Any goroutine may call it.
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

// relayout notes a change of the facts by which requests are judged.
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

// Derived returns the result of make, which may read the view's layout only, and keeps it until it is called for another layout. It has one
// caller, ctld/feasible. Any goroutine may call it.
func (v *View) Derived(make func(*View) any) any {
	l := v.layout
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.derived == nil || l.of != v.Layout {
		l.derived, l.of = make(v), v.Layout
	}
	return l.derived
}

// sameLayout reports whether a node can hold the same jobs as before, if it were up and empty.
func sameLayout(a, b *Node) bool {
	x, y := a.NodeRecord, b.NodeRecord
	return a.Inv == b.Inv && (x.State == pb.NodeState_NODE_FUTURE) == (y.State == pb.NodeState_NODE_FUTURE) &&
		(x == y || x.Cpus == y.Cpus && x.Sockets == y.Sockets && x.Cores == y.Cores && x.Threads == y.Threads &&
			x.RealMemoryMib == y.RealMemoryMib &&
			x.MemSpecMib == y.MemSpecMib && x.TmpDiskMib == y.TmpDiskMib && x.Features == y.Features &&
			x.ActiveFeatures == y.ActiveFeatures && x.RefusesRoot == y.RefusesRoot && x.RefusesBelow == y.RefusesBelow)
}

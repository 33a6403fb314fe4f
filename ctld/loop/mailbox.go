package loop

import (
	"cmp"
	"container/heap"
	"context"
	"sync"
)

// The mailbox takes senders in turn. Four kinds of senders get equal shares of the writer while all of them have requests waiting: the
// controller itself (planner, programs, accounting), the nodes, root and SlurmUser, and the users. Users share theirs equally by uid, nodes
// by name. Shares count the cost of commands (state.Tx.Spend), not their number. Requests within a lane keep their order. A sender alone is
// never held up: there is no rate limit.
//
// The lane that has used least goes next, as in start-time fair queueing. A lane that returns after a pause starts at the level of the
// lanes being served; unused share does not accumulate.

// Who is a kind of sender.
type Who int

// The kinds of senders.
const (
	Controller Who = iota // the default
	Nodes
	Operators
	Users
	kinds
)

// laneSize bounds the waiting requests of each kind of sender, all users or all nodes together.
const laneSize = mailboxSize

// perCommand is the cost of every command on top of its own units.
const perCommand = 10

type sender struct {
	who  Who
	uid  uint32 // set for Users
	node string // set for Nodes; "" for several nodes
}

type senderKey struct{}

// For attaches the sender of commands to a context: the user behind a connection.
func For(ctx context.Context, who Who, uid uint32) context.Context {
	if who != Users {
		uid = 0
	}
	return context.WithValue(ctx, senderKey{}, sender{who: who, uid: uid})
}

// ForNode is For with the name of a node; "" stands for several nodes.
func ForNode(ctx context.Context, node string) context.Context {
	return context.WithValue(ctx, senderKey{}, sender{who: Nodes, node: node})
}

func senderOf(ctx context.Context) sender {
	s, _ := ctx.Value(senderKey{}).(sender)
	return s
}

// lane holds the waiting requests of one sender, in order.
type lane struct {
	from sender
	list []request
	used uint64 // units, including unused share
	at   int    // index in the heap of its kind; -1: not in it
}

func (l *lane) pop() request {
	r := l.list[0]
	l.list[0] = request{}
	if l.list = l.list[1:]; len(l.list) == 0 {
		l.list = nil // also frees the part of the array that was taken
	}
	return r
}

// kind holds the waiting requests of one kind of sender.
type kind struct {
	used  uint64 // units, including unused share
	lanes map[sender]*lane
	turns turns  // lanes with waiting requests
	crowd int    // requests in them
	level uint64 // units used by the lane served last; a returning lane starts here
}

type mailbox struct {
	mu    sync.Mutex
	wake  chan struct{} // holds an element when a request may be waiting
	kinds [kinds]kind
	level uint64 // units used by the kind served last
}

func newMailbox() *mailbox {
	b := &mailbox{wake: make(chan struct{}, 1)}
	for w := range b.kinds {
		b.kinds[w].lanes = map[sender]*lane{}
	}
	return b
}

// turns is a heap of the lanes of a kind; the one that has used least comes first.
type turns []*lane

func (t turns) Len() int { return len(t) }
func (t turns) Less(i, j int) bool {
	a, b := t[i], t[j]
	return cmp.Or(cmp.Compare(a.used, b.used), cmp.Compare(a.from.uid, b.from.uid), cmp.Compare(a.from.node, b.from.node)) < 0
}
func (t turns) Swap(i, j int) { t[i], t[j] = t[j], t[i]; t[i].at, t[j].at = i, j }
func (t *turns) Push(x any)   { l := x.(*lane); l.at = len(*t); *t = append(*t, l) }
func (t *turns) Pop() any {
	last := len(*t) - 1
	l := (*t)[last]
	(*t)[last], l.at = nil, -1
	*t = (*t)[:last]
	return l
}

// put queues a request, or returns false when there are too many. One user or node may take half of the room left to its kind; beyond that,
// there is room for one command each.
func (b *mailbox) put(s sender, r request) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	k, l := &b.kinds[s.who], b.kinds[s.who].lanes[s]
	most, all := laneSize, laneSize
	if s.who == Users || s.who == Nodes {
		most, all = max((laneSize-k.crowd)/2, 1), 2*laneSize
	}
	if l != nil && len(l.list) >= most || k.crowd >= all {
		return false
	}
	r.from = s
	l = b.begin(s)
	l.list = append(l.list, r)
	b.ring()
	return true
}

// back puts the rest of a command before its sender's other requests.
func (b *mailbox) back(r request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.begin(r.from)
	l.list = append([]request{r}, l.list...)
	b.ring()
}

func (b *mailbox) ring() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// begin counts a request and returns its lane, which it adds to the heap. A kind or lane that had nothing waiting is raised to the current
// level.
func (b *mailbox) begin(s sender) *lane {
	k := &b.kinds[s.who]
	if k.crowd == 0 {
		k.used = max(k.used, b.level)
	}
	k.crowd++
	l := k.lanes[s]
	if l == nil {
		l = &lane{from: s, at: -1}
		k.lanes[s] = l
	}
	if l.at < 0 {
		l.used = max(l.used, k.level)
		heap.Push(&k.turns, l)
	}
	return l
}

// next removes and returns the next request; false: nothing waits.
func (b *mailbox) next() (r request, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var k *kind
	for w := range b.kinds {
		if o := &b.kinds[w]; o.crowd > 0 && (k == nil || o.used < k.used) {
			k = o
		}
	}
	if k == nil {
		return r, false
	}
	l := k.turns[0]
	b.level, k.level = k.used, l.used
	r = l.pop()
	k.crowd--
	if len(l.list) == 0 {
		heap.Pop(&k.turns)
	}
	return r, true
}

// charge adds the cost of a request to its sender.
func (b *mailbox) charge(s sender, units int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	cost, k := uint64(perCommand+units), &b.kinds[s.who]
	k.used += cost
	l := k.lanes[s]
	if l == nil {
		return
	}
	l.used += cost
	switch {
	case l.at >= 0:
		heap.Fix(&k.turns, l.at)
	case k.crowd == 0: // nothing waits, so no lane needs its account
		clear(k.lanes)
	}
}

// waiting returns the number of queued requests.
func (b *mailbox) waiting() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for w := range b.kinds {
		n += b.kinds[w].crowd
	}
	return n
}

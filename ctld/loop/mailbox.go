package loop

import (
	"cmp"
	"container/heap"
	"context"
	"sync"
)

// The mailbox is served in turn. Four kinds of senders have equal shares of the writer when all of them have something waiting: the
// controller itself (the planner, programs, accounting), the nodes, root and SlurmUser, and the users; the users share theirs equally by
// uid, and the nodes theirs by name. What counts is not the number of commands but what they cost (state.Tx.Spend), so that a sender with
// expensive ones gets fewer turns. Within one sender's lane the order stays. Nobody is held up while nobody else waits: there is no rate.
//
// The lane that has had least goes next, as in start-time fair queueing: a lane that comes back after a pause begins at the level of
// those that are being served, and has no claim to what it did not use.

// Who is a kind of sender.
type Who int

// The kinds of senders.
const (
	Controller Who = iota // who does not say otherwise
	Nodes
	Operators
	Users
	kinds
)

// laneSize bounds what waits of each kind of sender, of all users and of all nodes together.
const laneSize = mailboxSize

// perCommand is what every command costs beside what it spends.
const perCommand = 10

type sender struct {
	who  Who
	uid  uint32 // of Users
	node string // of Nodes, "": of several
}

type senderKey struct{}

// For names the sender of the commands of a context: the user behind a connection.
func For(ctx context.Context, who Who, uid uint32) context.Context {
	if who != Users {
		uid = 0
	}
	return context.WithValue(ctx, senderKey{}, sender{who: who, uid: uid})
}

// ForNode is For with what a node says; "" is for what several say.
func ForNode(ctx context.Context, node string) context.Context {
	return context.WithValue(ctx, senderKey{}, sender{who: Nodes, node: node})
}

func senderOf(ctx context.Context) sender {
	s, _ := ctx.Value(senderKey{}).(sender)
	return s
}

// lane is what waits of one sender, in order.
type lane struct {
	from sender
	list []request
	used uint64 // units, with what was forgone
	at   int    // in the heap of its kind; -1: not there
}

func (l *lane) pop() request {
	r := l.list[0]
	l.list[0] = request{}
	if l.list = l.list[1:]; len(l.list) == 0 {
		l.list = nil // and with it what is in front
	}
	return r
}

// kind is what waits of one kind of sender.
type kind struct {
	used  uint64 // units, with what was forgone
	lanes map[sender]*lane
	turns turns  // those with something waiting
	crowd int    // requests in them
	level uint64 // what the lane had used that was served last: where another begins
}

type mailbox struct {
	mu    sync.Mutex
	wake  chan struct{} // has one in it when something may wait
	kinds [kinds]kind
	level uint64 // what the kind had used that was served last
}

func newMailbox() *mailbox {
	b := &mailbox{wake: make(chan struct{}, 1)}
	for w := range b.kinds {
		b.kinds[w].lanes = map[sender]*lane{}
	}
	return b
}

// turns is a heap of senders of a kind: first who has used least.
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

// put takes a request in; false: there are too many. Of the room for users and for nodes one may have half of what is left; beyond it,
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

// back puts what is left of a command in front of its sender's others.
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

// begin counts a request and is the lane that it goes to, among those whose turn comes. A kind or a lane that had nothing waiting is
// brought to the present level.
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

// next takes out the request whose turn it is; false: nothing waits.
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

// charge notes what a request has cost.
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
	case k.crowd == 0: // nobody is ahead of anybody
		clear(k.lanes)
	}
}

// waiting is how many requests there are.
func (b *mailbox) waiting() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for w := range b.kinds {
		n += b.kinds[w].crowd
	}
	return n
}

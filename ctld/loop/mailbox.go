package loop

import (
	"cmp"
	"container/heap"
	"context"
	"sync"
)

// The mailbox is served in turn. Four kinds of senders have equal shares of the writer when all of them have something waiting: the
// controller itself (the planner, programs, accounting), the nodes, root and SlurmUser, and the users; the users share theirs equally by
// uid. What counts is not the number of commands but what they cost (state.Tx.Spend), so that a user with expensive ones gets fewer
// turns. Within one sender's lane the order stays.
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

// laneSize bounds what waits of each kind of sender but the users, and of all users together.
const laneSize = mailboxSize

// perCommand is what every command costs beside what it spends.
const perCommand = 10

type sender struct {
	who Who
	uid uint32 // of Users
}

type senderKey struct{}

// For names the sender of the commands of a context: the user behind a connection, a node's stream.
func For(ctx context.Context, who Who, uid uint32) context.Context {
	if who != Users {
		uid = 0
	}
	return context.WithValue(ctx, senderKey{}, sender{who, uid})
}

func senderOf(ctx context.Context) sender {
	s, _ := ctx.Value(senderKey{}).(sender)
	return s
}

// lane is what waits of one sender, in order.
type lane struct {
	uid  uint32
	list []request
	used uint64 // units, with what was forgone
	at   int    // in the heap of users; -1: not there
}

func (l *lane) pop() request {
	r := l.list[0]
	l.list[0] = request{}
	if l.list = l.list[1:]; len(l.list) == 0 {
		l.list = nil // and with it what is in front
	}
	return r
}

type mailbox struct {
	mu    sync.Mutex
	wake  chan struct{} // has one in it when something may wait
	kinds [kinds]lane   // that of Users has no list, only what they used together
	users map[uint32]*lane
	turns turns // users with something waiting
	crowd int   // requests in them
	// What those had used that were served last: where a lane begins.
	level     uint64
	userLevel uint64
}

func newMailbox() *mailbox {
	return &mailbox{wake: make(chan struct{}, 1), users: map[uint32]*lane{}}
}

// turns is a heap of users: first who has used least.
type turns []*lane

func (t turns) Len() int { return len(t) }
func (t turns) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(t[i].used, t[j].used), cmp.Compare(t[i].uid, t[j].uid)) < 0
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

// put takes a request in; false: there are too many. Of the room for users one may have half of what is left; beyond it, there is room
// for one command each.
func (b *mailbox) put(s sender, r request) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	r.from = s
	if s.who != Users {
		l := &b.kinds[s.who]
		if len(l.list) >= laneSize {
			return false
		}
		b.begin(s.who)
		l.list = append(l.list, r)
	} else {
		l := b.users[s.uid]
		if l != nil && len(l.list) >= max((laneSize-b.crowd)/2, 1) || b.crowd >= 2*laneSize {
			return false
		}
		b.begin(Users)
		l = b.user(s.uid)
		l.list = append(l.list, r)
		b.crowd++
	}
	b.ring()
	return true
}

// back puts what is left of a command in front of its sender's others.
func (b *mailbox) back(r request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begin(r.from.who)
	l := &b.kinds[r.from.who]
	if r.from.who == Users {
		l = b.user(r.from.uid)
		b.crowd++
	}
	l.list = append([]request{r}, l.list...)
	b.ring()
}

func (b *mailbox) ring() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// begin brings a kind that had nothing waiting to the present level.
func (b *mailbox) begin(w Who) {
	if !b.waits(w) {
		b.kinds[w].used = max(b.kinds[w].used, b.level)
	}
}

func (b *mailbox) waits(w Who) bool {
	if w == Users {
		return len(b.turns) > 0
	}
	return len(b.kinds[w].list) > 0
}

// user is the lane of a user, among those whose turn comes.
func (b *mailbox) user(uid uint32) *lane {
	l := b.users[uid]
	if l == nil {
		l = &lane{uid: uid, at: -1}
		b.users[uid] = l
	}
	if l.at < 0 {
		l.used = max(l.used, b.userLevel)
		heap.Push(&b.turns, l)
	}
	return l
}

// next takes out the request whose turn it is; false: nothing waits.
func (b *mailbox) next() (r request, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	turn := kinds
	for w := range kinds {
		if b.waits(w) && (turn == kinds || b.kinds[w].used < b.kinds[turn].used) {
			turn = w
		}
	}
	if turn == kinds {
		return r, false
	}
	b.level = b.kinds[turn].used
	if turn != Users {
		return b.kinds[turn].pop(), true
	}
	l := b.turns[0]
	b.userLevel = l.used
	r = l.pop()
	b.crowd--
	if len(l.list) == 0 {
		heap.Pop(&b.turns)
	}
	return r, true
}

// charge notes what a request has cost.
func (b *mailbox) charge(s sender, units int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	cost := uint64(perCommand + units)
	b.kinds[s.who].used += cost
	if s.who != Users {
		return
	}
	l := b.users[s.uid]
	if l == nil {
		return
	}
	l.used += cost
	switch {
	case l.at >= 0:
		heap.Fix(&b.turns, l.at)
	case len(b.turns) == 0: // nobody is ahead of anybody
		clear(b.users)
	}
}

// waiting is how many requests there are.
func (b *mailbox) waiting() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for w := range kinds {
		n += len(b.kinds[w].list)
	}
	return n + b.crowd
}

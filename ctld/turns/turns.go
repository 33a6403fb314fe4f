package turns

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// turnLength is the least time for which a call works before it lets others go first.
const turnLength = time.Millisecond

// ScriptPlaces is the number of concurrent calls of job_submit.lua, in a process each; one user gets all but one.
const ScriptPlaces = 3

// gate gives places to calls, to users in turn.
type gate struct {
	most  int // places of one user
	crowd atomic.Int32

	mu    sync.Mutex
	free  int
	busy  int // taken places
	users map[uint32]*reader
	level time.Duration // time used by the user served last: a returning user begins there
}

// reader is a user with waiting or working calls, or with a debt.
type reader struct {
	waiting []chan struct{} // closed for the call that has got a place
	working int
	used    time.Duration
}

func newGate(places, most int) *gate {
	return &gate{free: places, most: most, users: map[uint32]*reader{}}
}

// Gates are the gates of a controller.
type Gates struct {
	reads, selections, scripts *gate
}

// New makes gates for the cores of this machine.
func New() *Gates {
	cores := runtime.GOMAXPROCS(0)
	return &Gates{reads: newGate(cores, cores), selections: newGate(max(cores, 2), max(cores, 2)/2),
		scripts: newGate(ScriptPlaces, ScriptPlaces-1)}
}

// Call returns the turn of a user's call that is about to begin.
func (g *Gates) Call(uid uint32) *Turn { return &Turn{gates: g, gate: g.reads, uid: uid} }

// Selection returns the turn of a user's call that only reads the accounting database.
func (g *Gates) Selection(uid uint32) *Turn { return &Turn{gates: g, gate: g.selections, uid: uid} }

// queue requests a place; the channel is closed when there is one.
func (g *gate) queue(uid uint32) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	u := g.users[uid]
	if u == nil {
		u = &reader{}
		g.users[uid] = u
	}
	if len(u.waiting)+u.working == 0 {
		u.used = max(u.used, g.level)
	}
	turn := make(chan struct{})
	u.waiting = append(u.waiting, turn)
	g.crowd.Add(1)
	g.serve()
	return turn
}

// quit stops waiting. It returns the place if the call has got one meanwhile.
func (g *gate) quit(uid uint32, turn <-chan struct{}) {
	g.mu.Lock()
	u := g.users[uid]
	i := slices.IndexFunc(u.waiting, func(c chan struct{}) bool { return c == turn })
	if i >= 0 {
		u.waiting = slices.Delete(u.waiting, i, i+1)
		g.crowd.Add(-1)
		g.forget()
	}
	g.mu.Unlock()
	if i < 0 {
		g.leave(uid, 0)
	}
}

// leave returns a place that was used for some time.
func (g *gate) leave(uid uint32, used time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	u := g.users[uid]
	u.used += used
	u.working--
	g.busy--
	g.free++
	g.serve()
	g.forget()
}

// serve gives free places to waiting calls. The users are those of one machine, so looking at each is cheap.
func (g *gate) serve() {
	for g.free > 0 {
		var next *reader
		for _, u := range g.users {
			if len(u.waiting) > 0 && u.working < g.most && (next == nil || u.used < next.used) {
				next = u
			}
		}
		if next == nil {
			return
		}
		g.level = max(g.level, next.used)
		g.free--
		g.busy++
		next.working++
		g.crowd.Add(-1)
		close(next.waiting[0])
		next.waiting = slices.Delete(next.waiting, 0, 1)
	}
}

// forget drops users without calls and debts.
func (g *gate) forget() {
	idle := g.busy == 0 && g.crowd.Load() == 0
	for uid, u := range g.users {
		if len(u.waiting)+u.working == 0 && (idle || u.used <= g.level) {
			delete(g.users, uid)
		}
	}
}

// Turn is a call's place, or its wait for one. Only the call's goroutine uses it. The zero value is an operator's, who needs none.
type Turn struct {
	gates *Gates
	gate  *gate
	uid   uint32
	held  bool
	since time.Time
}

type key struct{}

// With returns a context with the turn of a call.
func With(ctx context.Context, t *Turn) context.Context { return context.WithValue(ctx, key{}, t) }

// Of returns the turn of a call; never nil.
func Of(ctx context.Context) *Turn {
	if t, ok := ctx.Value(key{}).(*Turn); ok {
		return t
	}
	return &Turn{}
}

// Script waits for a call's turn to ask job_submit.lua. leave ends it.
func Script(ctx context.Context) (leave func(), err error) {
	t := Of(ctx).beside(func(g *Gates) *gate { return g.scripts })
	return t.Give, t.Take(ctx)
}

// Selection is Script for accounting. The call gives up its own turn before: reading a database takes longer than that may last.
func Selection(ctx context.Context) (leave func(), err error) {
	call := Of(ctx)
	call.Give()
	t := call.beside(func(g *Gates) *gate { return g.selections })
	return t.Give, t.Take(ctx)
}

// beside returns a second turn of the same user, at another gate.
func (t *Turn) beside(at func(*Gates) *gate) *Turn {
	if t.gates == nil {
		return &Turn{}
	}
	return &Turn{gates: t.gates, gate: at(t.gates), uid: t.uid}
}

// Held reports whether the call has its place.
func (t *Turn) Held() bool { return t.held }

// Take waits for the place.
func (t *Turn) Take(ctx context.Context) error {
	if t.gate == nil || t.held {
		return nil
	}
	mine := t.gate.queue(t.uid)
	select {
	case <-mine:
	default:
		select {
		case <-mine:
		case <-ctx.Done():
			t.gate.quit(t.uid, mine)
			return ctx.Err()
		}
	}
	t.held, t.since = true, time.Now()
	return nil
}

// Give releases the place.
func (t *Turn) Give() {
	if t.held {
		t.held = false
		t.gate.leave(t.uid, time.Since(t.since))
	}
}

// Pass lets others go first when some wait and this call has worked for a while.
func (t *Turn) Pass(ctx context.Context) error {
	if !t.held || t.gate.crowd.Load() == 0 || time.Since(t.since) < turnLength {
		return ctx.Err()
	}
	t.Give()
	return t.Take(ctx)
}

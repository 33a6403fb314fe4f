package rpc

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// What users ask for is worked on in turn by uid, so that one user's listings of a hundred thousand jobs do not take all cores from the
// others and from the writer: so many calls work at a time as there are cores, and of those that wait the user goes next who has had
// least. A long call lets others have theirs between its pages and every few hundred records; while an answer waits for its reader, its
// call has no place, and none has while it waits for the writer, which has turns of its own (loop.For). Operators have no turns to wait
// for. Nobody waits here while nobody else does.
//
// What reads the accounting database cannot let go in the middle of a query. It has places of its own, of which one user has half.
const turnLength = time.Millisecond // how long a call works at least before it lets others go first

// turnMethods are the calls that take their turn when their request has been read. Of the others, those that look for jobs take it for the
// walk (attentive), and submissions when job_submit.lua and the directory of users have been asked, which may take long.
var turnMethods = map[string]bool{
	"Config": true, "Stats": true, "Topology": true, "Jobs": true, "Nodes": true, "Gpus": true, "Partitions": true, "Reservations": true,
	"Licenses": true, "Explain": true, "Priorities": true, "Usage": true, "BatchScript": true, "Crontab": true,
	"Steps": true, "Ping": true, "Policy": true, "CancelJobs": true, "ControlJobs": true,
}

// selectMethods read the accounting database.
var selectMethods = map[string]bool{"Accounting": true, "AccountingScript": true, "AccountUsage": true, "Report": true}

// ScriptPlaces is how many calls ask job_submit.lua at a time, in a process each, of which one user has all but one.
const ScriptPlaces = 3

// turnstile gives places to calls, to users in turn.
type turnstile struct {
	most  int // places of one user
	crowd atomic.Int32

	mu    sync.Mutex
	free  int
	busy  int // places that are taken
	users map[uint32]*reader
	level time.Duration // what the user had had who was served last: who comes back begins there
}

// reader is a user who waits, works, or has had more than others.
type reader struct {
	waiting []chan struct{} // closed for the call that has got a place
	working int
	used    time.Duration
}

func newTurnstile(places, most int) *turnstile {
	return &turnstile{free: places, most: most, users: map[uint32]*reader{}}
}

// newTurns are those of reads and those of selections.
func newTurns() (reads, selects *turnstile) {
	cores := runtime.GOMAXPROCS(0)
	return newTurnstile(cores, cores), newTurnstile(max(cores, 2), max(cores, 2)/2)
}

// enter takes a place, which is there when the channel is closed.
func (g *turnstile) enter(uid uint32) <-chan struct{} {
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

// quit is for a call that does not wait any longer. It gives the place back if it has been given one meanwhile.
func (g *turnstile) quit(uid uint32, turn <-chan struct{}) {
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

// leave gives a place back that was used for so long.
func (g *turnstile) leave(uid uint32, used time.Duration) {
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

// serve gives the free places to those who wait. The users are those of one machine, so looking at each is cheap.
func (g *turnstile) serve() {
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

// forget drops who has no claim and no debt.
func (g *turnstile) forget() {
	idle := g.busy == 0 && g.crowd.Load() == 0
	for uid, u := range g.users {
		if len(u.waiting)+u.working == 0 && (idle || u.used <= g.level) {
			delete(g.users, uid)
		}
	}
}

// turn is a call's place, or its wish for one. Its call's goroutine alone uses it. The zero value is an operator's, who needs none.
type turn struct {
	gate    *turnstile
	scripts *turnstile // of calls that ask job_submit.lua
	selects *turnstile // of those that ask accounting, where that is not what they are for
	uid     uint32
	held    bool
	since   time.Time
}

type turnKey struct{}

// turnIn is that of a call; never nil.
func turnIn(ctx context.Context) *turn {
	if t, ok := ctx.Value(turnKey{}).(*turn); ok {
		return t
	}
	return &turn{}
}

// turnFor is the turn of a call that is about to begin.
func (s *Local) turnFor(p *Peer, method string) *turn {
	switch {
	case p.Operator:
		return &turn{}
	case selectMethods[method]:
		return &turn{gate: s.selects, uid: p.owner}
	}
	return &turn{gate: s.reads, scripts: s.scripts, selects: s.selects, uid: p.owner}
}

// ScriptTurn waits for a call's turn to ask job_submit.lua. leave ends it.
func ScriptTurn(ctx context.Context) (leave func(), err error) {
	call := turnIn(ctx)
	t := &turn{gate: call.scripts, uid: call.uid}
	return t.give, t.take(ctx)
}

// selectTurn is ScriptTurn for accounting. The call gives up its own turn before: reading a database takes longer than that may last.
func selectTurn(ctx context.Context) (leave func(), err error) {
	call := turnIn(ctx)
	call.give()
	t := &turn{gate: call.selects, uid: call.uid}
	return t.give, t.take(ctx)
}

// take waits for the place.
func (t *turn) take(ctx context.Context) error {
	if t.gate == nil || t.held {
		return nil
	}
	mine := t.gate.enter(t.uid)
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

// give lets others have it.
func (t *turn) give() {
	if t.held {
		t.held = false
		t.gate.leave(t.uid, time.Since(t.since))
	}
}

// pass lets others go first when some wait and this call has worked for a while.
func (t *turn) pass(ctx context.Context) error {
	if !t.held || t.gate.crowd.Load() == 0 || time.Since(t.since) < turnLength {
		return ctx.Err()
	}
	t.give()
	return t.take(ctx)
}

package stepd

import (
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-hpc/sluice/internal/inherit"
	"github.com/sluice-hpc/sluice/noded/private"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// thread is what the launcher works on. What package private gives a thread it cannot give back, so a step that needs another one gets
// another: the launcher moves. It stays for the next step of the same user when the last one has left nothing: making namespaces and
// taking them down costs a fifth of what the shortest job costs.
type thread struct {
	has    *pb.Privacy
	uid    uint32 // of the step, with namespaces
	room   *private.Room
	joined bool // the namespaces are those of the step's allocation
	used   bool // a step has begun here that has not ended, or has left something
	broken error
}

// keptFor is how long namespaces without a step are kept: what is unmounted on the node meanwhile may live on in them.
const keptFor = time.Second

// run moves the launcher to a thread of its own, where it begins with a task, or waits for one.
func (l *launcher) run(first *task) {
	go func() {
		_ = inherit.OnThread(func() error {
			l.live(first)
			return nil
		})
	}()
}

func (l *launcher) live(t *task) {
	th := l.newThread(t)
	defer th.room.Close()
	for made := t; ; {
		switch {
		case t == nil: // as it was started, or nothing has come for a while
			if th.room != nil {
				l.run(nil)
				return
			}
		case t.b == nil:
			if th.leave(); th.used {
				l.run(nil)
				return
			}
		case th.broken != nil:
			ev := failure(th.broken)
			ev.broken = true
			t.events <- *ev
			close(t.done)
		case t != made && !t.second && !th.suits(t.b):
			l.run(t)
			return
		default:
			th.used = true
			th.broken = l.serve(th, t)
			close(t.done)
		}
		var more bool
		if t, more = l.next(th); !more {
			return
		}
	}
}

// next waits for a task; in namespaces without a step, no longer than they are kept.
func (l *launcher) next(th *thread) (t *task, more bool) {
	var late <-chan time.Time
	if th.room != nil && !th.used {
		timer := time.NewTimer(keptFor)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case t, more = <-l.tasks:
		return t, more
	case <-late:
		return nil, true
	}
}

// newThread makes the calling thread fit for a task. What fails is the fault of the node, and a reason to give up the shim: unless only
// that fails which jobs have without anybody asking for it.
func (l *launcher) newThread(t *task) *thread {
	th := &thread{}
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		th.broken = err
		return th
	}
	if th.broken = l.self.check(); th.broken != nil || t == nil {
		return th
	}
	th.has, th.uid = t.b.Privacy, t.b.Uid
	var err error
	if room := t.b.Room; room != nil {
		if th.broken = private.Join(t.b.Privacy, room); th.broken == nil {
			th.joined = true
			th.broken = private.Restrict(t.b.Privacy)
		}
		return th
	}
	if th.room, err = private.Enter(t.b.Privacy, t.b.Cgroup); err != nil {
		if !private.InMemory(t.b.Privacy) {
			th.broken = err
			return th
		}
		l.log.Warn("a job shares /dev/shm, System V memory and message queues with others", "job", t.b.Key.GetJobId(), "err", err)
	}
	th.broken = private.Restrict(t.b.Privacy)
	return th
}

// suits tells whether a step can begin here. Nothing is shared between users, and root could have changed what is mounted.
func (th *thread) suits(b *pb.Bundle) bool {
	if th.joined || b.Room != nil {
		return false
	}
	same := !private.Wanted(th.has) && !private.Wanted(b.Privacy) || proto.Equal(th.has, b.Privacy)
	return same && (th.room == nil || !th.used && th.uid == b.Uid && b.Uid != 0)
}

// leave is for the end of a step.
func (th *thread) leave() {
	th.used = th.joined || th.room != nil && !th.room.Empty()
}

// thread is where the steps of an allocation find its namespaces, as long as it lasts. The caller is on it. 0: there are none, or not all
// that were wanted.
func (th *thread) thread() int {
	if th.room == nil || !th.room.Whole() {
		return 0
	}
	return unix.Gettid()
}

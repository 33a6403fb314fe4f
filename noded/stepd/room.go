package stepd

import (
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-hpc/sluice/internal/inherit"
	"github.com/sluice-hpc/sluice/noded/private"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// thread is the launcher's thread. Namespaces and restrictions from package private cannot be undone, so for a step that needs
// others the launcher moves to a new thread. It keeps the thread for the next step of the same user if the last one left nothing
// behind: creating and removing namespaces costs a fifth of the shortest job.
type thread struct {
	has    *pb.Privacy
	uid    uint32 // the user of the namespaces
	room   *private.Room
	joined bool // in the namespaces of the step's allocation
	used   bool // a step runs here, or has left something
	broken error
}

// keptFor is how long namespaces without a step are kept: a file system that is unmounted on the node may stay mounted in them.
const keptFor = time.Second

// run moves the launcher to a new thread, where it starts with a task, or waits for one.
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
		case t == nil: // at startup, or no task came for a while
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

// next waits for a task; in namespaces without a step, at most keptFor.
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

// newThread prepares the calling thread for a task. A failure is the node's fault and a reason to give up the shim, unless it
// concerns only the privacy that jobs have by default.
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

// suits reports whether a step can start on this thread. Users share nothing, and root could have changed the mounts.
func (th *thread) suits(b *pb.Bundle) bool {
	if th.joined || b.Room != nil {
		return false
	}
	same := !private.Wanted(th.has) && !private.Wanted(b.Privacy) || proto.Equal(th.has, b.Privacy)
	return same && (th.room == nil || !th.used && th.uid == b.Uid && b.Uid != 0)
}

// leave notes the end of a step.
func (th *thread) leave() {
	th.used = th.joined || th.room != nil && !th.room.Empty()
}

// thread returns the thread id by which the steps of an allocation find its namespaces while it lasts; 0: there are none, or not
// all that were wanted. The caller is on that thread.
func (th *thread) thread() int {
	if th.room == nil || !th.room.Whole() {
		return 0
	}
	return unix.Gettid()
}

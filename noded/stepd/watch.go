package stepd

import (
	"context"
	"crypto/tls"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/proto/stepwire"
)

// watcher is a connection to an sattach, which receives what srun receives from then on. It never blocks a task: one that does
// not keep up is dropped.
type watcher struct {
	conn *tls.Conn
	todo chan []byte
	once sync.Once
}

// Bounds of watchers.
const (
	maxWatchers = 16
	maxBehind   = 64 // queued frames
)

// tell queues a frame.
func (w *watcher) tell(frame []byte) {
	select {
	case w.todo <- frame:
	default:
		w.leave()
	}
}

func (w *watcher) leave() { w.once.Do(func() { _ = w.conn.NetConn().Close() }) }

func (w *watcher) send(over <-chan struct{}) {
	defer w.leave()
	for {
		select {
		case frame := <-w.todo:
			if _, err := w.conn.Write(frame); err != nil {
				return
			}
		case <-over:
			_ = w.conn.NetConn().SetDeadline(time.Now().Add(lastWords))
			for {
				select {
				case frame := <-w.todo:
					if _, err := w.conn.Write(frame); err != nil {
						return
					}
				default:
					_ = w.conn.CloseWrite()
					return
				}
			}
		}
	}
}

// watch connects to new watchers.
func (c *crew) watch(list []*pb.StepWatcher) {
	if c.wire == nil {
		c.early = list
		return
	}
	for _, of := range list {
		if of.Seq <= c.watched {
			continue
		}
		c.watched = of.Seq
		t := &pb.StepTasks{Addresses: of.Addresses, Certificate: c.b.Step.Certificate, Key: c.b.Step.Key}
		hello := c.hello()
		hello.Watcher = true
		go func() {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			w, _, err := reach(ctx, t, hello, false, reachFor)
			if err != nil {
				return
			}
			to := &watcher{conn: w.conn, todo: make(chan []byte, maxBehind)}
			if !c.wire.add(to) {
				to.leave()
				return
			}
			go to.send(c.over)
			c.listenTo(w)
			to.leave()
			c.wire.remove(to)
		}()
	}
}

// listenTo passes on the input and signals of an sattach.
func (c *crew) listenTo(w *wire) {
	for {
		h, err := stepwire.ReadHeader(w.conn)
		var b []byte
		if err == nil {
			b, err = w.read(h)
		}
		if err != nil {
			return
		}
		switch h.Kind {
		case stepwire.In:
			if len(b) > 0 { // an sattach does not end srun's input
				c.in.put(h.Task, b)
			}
			if !c.room(w) {
				return
			}
		case stepwire.Signal:
			s := &pb.StepSignal{}
			if proto.Unmarshal(b, s) == nil && !c.say(wireEvent{kind: wireSignal, sig: s.Signal}) {
				return
			}
		}
	}
}

func (w *wire) add(to *watcher) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.watchers) >= maxWatchers {
		return false
	}
	w.watchers = append(w.watchers, to)
	return true
}

func (w *wire) remove(of *watcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, to := range w.watchers {
		if to == of {
			w.watchers = append(w.watchers[:i:i], w.watchers[i+1:]...)
			return
		}
	}
}

package pmix

import (
	"io"
	"os"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-hpc/sluice/proto/stepwire"
)

// queue is what the shim has not read. The library's threads put into it and never wait: while they do, no task is answered, and while
// what the shim says is not read, no other node may be.
type queue struct {
	mu    sync.Mutex
	some  *sync.Cond
	bytes []byte
	busy  bool
	err   error
}

func newQueue(w io.Writer) *queue {
	q := &queue{}
	q.some = sync.NewCond(&q.mu)
	go q.write(w)
	return q
}

func (q *queue) write(w io.Writer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.err == nil {
		if len(q.bytes) == 0 {
			q.busy = false
			q.some.Broadcast()
			q.some.Wait()
			continue
		}
		b := q.bytes
		q.bytes, q.busy = nil, true
		q.mu.Unlock()
		_, err := w.Write(b)
		q.mu.Lock()
		q.err = err
	}
	q.some.Broadcast()
}

func (q *queue) put(b []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.bytes)+len(b) > maxQueue {
		os.Exit(1) // tasks ask and ask, and the shim does not read
	}
	q.bytes, q.busy = append(q.bytes, b...), true
	q.some.Broadcast()
}

func (q *queue) frame(kind stepwire.Kind, task uint32, payload []byte) {
	q.put(stepwire.Append(nil, kind, stepwire.Last, task, payload))
}

func (q *queue) message(kind stepwire.Kind, m proto.Message) {
	if raw, err := proto.Marshal(m); err == nil {
		q.put(stepwire.AppendPieces(nil, kind, raw))
	}
}

// drain waits until all has been written.
func (q *queue) drain() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.busy && q.err == nil {
		q.some.Wait()
	}
	return q.err
}

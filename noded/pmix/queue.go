package pmix

import (
	"io"
	"os"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-hpc/sluice/proto/stepwire"
)

// queue holds messages that the shim has not read yet. The library's threads add to it and never block: a blocked thread would
// answer no task, and if the shim's messages were not read, no other node could be answered either.
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
		os.Exit(1) // tasks keep asking, and the shim does not read
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

// drain waits until everything is written.
func (q *queue) drain() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.busy && q.err == nil {
		q.some.Wait()
	}
	return q.err
}

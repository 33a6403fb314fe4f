package frames

import (
	"sync"
	"time"
)

// Bytes of large messages that one ordinary user may have in this process, from the time a message is read until its call is answered, on
// all connections (UserReading) and on one (connReading). ttrpc reads a message whole before its sender and the number of calls can be
// checked: calls are counted (ctld/rpc) with the message in memory, so hundreds of connections could hold 4 MiB each while they wait for
// their turn.
//
// Messages up to smallMessage are not counted: the limits of calls and connections are enough for them. A call with several messages
// reserves the maximum of a submission (maxStream) when it begins, so that no two submissions wait for each other half read.
const (
	smallMessage = 16 << 10
	maxStream    = 6 << 20
	UserReading  = 64 << 20
	connReading  = 2 * maxStream
	// MaxWait bounds the time that a message waits to be read; then its connection ends. Commands that submit try again.
	MaxWait = time.Minute
)

// budget is a number of bytes that may be taken and are returned.
type budget struct {
	mu    sync.Mutex
	left  int64
	freed chan struct{} // closed when some are returned
}

func newBudget(n int64) *budget { return &budget{left: n, freed: make(chan struct{})} }

// take waits until n are available; false when that takes too long, or the connection has ended.
func (b *budget) take(n int64, patience time.Duration, ended <-chan struct{}) bool {
	var late <-chan time.Time
	for {
		b.mu.Lock()
		if b.left >= n {
			b.left -= n
			b.mu.Unlock()
			return true
		}
		freed := b.freed
		b.mu.Unlock()
		if late == nil {
			t := time.NewTimer(patience)
			defer t.Stop()
			late = t.C
		}
		select {
		case <-freed:
		case <-late:
			return false
		case <-ended:
			return false
		}
	}
}

func (b *budget) give(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left += n
	close(b.freed)
	b.freed = make(chan struct{})
}

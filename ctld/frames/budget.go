package frames

import (
	"sync"
	"time"
)

// How much of large messages one ordinary user may have in this process, from the moment that a message is read until its call is
// answered, on all connections (UserReading) and on one (connReading). ttrpc reads a message whole before anybody can ask whose it is and
// how many there are: the number of calls is looked at (ctld/rpc) with the message in hand, so that hundreds of connections
// could hold 4 MiB each while they wait for their turn.
//
// Messages up to smallMessage are not counted: the bounds of calls and connections are enough for them. A call that is going to send
// several messages takes what a submission may have (maxStream) when it begins, so that no two submissions wait for each other half read.
const (
	smallMessage = 16 << 10
	maxStream    = 6 << 20
	UserReading  = 64 << 20
	connReading  = 2 * maxStream
	// MaxWait bounds how long a message waits to be read; then its connection ends. Commands that submit try again.
	MaxWait = time.Minute
)

// budget is bytes that may be taken and are given back.
type budget struct {
	mu    sync.Mutex
	left  int64
	freed chan struct{} // closed when some are given back
}

func newBudget(n int64) *budget { return &budget{left: n, freed: make(chan struct{})} }

// take waits until there are n; false when that takes too long, or the connection that they are for has ended.
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

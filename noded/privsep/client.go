package privsep

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/sluice-hpc/sluice/internal/version"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	"google.golang.org/protobuf/proto"
)

// ErrGone reports that noded-root has gone. Whether it carried out the request is unknown.
var ErrGone = errors.New("the root half of the node daemon has gone")

// Client is noded-link's end of the connection.
type Client struct {
	conn  net.Conn
	words chan *nodepb.Word
	out   *Outbox
	gone  chan struct{} // closed when the connection has ended
	large *semaphore.Weighted

	mu      sync.Mutex
	last    uint64
	waiting map[uint64]chan *nodepb.Answer // nil once the connection has ended
}

// Dial takes over a connection and returns the Welcome.
func Dial(conn net.Conn) (*Client, *nodepb.Welcome, error) {
	r := bufio.NewReaderSize(conn, 16<<10)
	w, err := readWord(r)
	if err != nil {
		_ = conn.Close()
		return nil, nil, fmt.Errorf("cannot read the welcome of the root half of the node daemon: %w", err)
	}
	if w.GetWelcome() == nil {
		_ = conn.Close()
		return nil, nil, errors.New("the first message of the root half of the node daemon is not a welcome")
	}
	// Both are the same program unless somebody has mixed files: noded-link is started from the file that noded-root runs.
	if err := version.Ours.Meets("noded-link", "noded-root", version.Parse(w.GetWelcome().Build)); err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	c := &Client{conn: conn, words: make(chan *nodepb.Word, 64), out: NewOutbox(), gone: make(chan struct{}),
		large: semaphore.NewWeighted(LargeUnderWay), waiting: map[uint64]chan *nodepb.Answer{}}
	go func() {
		if c.out.Run(conn, c.gone, nil) != nil {
			_ = conn.Close()
		}
	}()
	go c.read(r)
	return c, w.GetWelcome(), nil
}

func readWord(r *bufio.Reader) (*nodepb.Word, error) {
	b, err := Read(r, MaxWord)
	if err != nil {
		return nil, err
	}
	w := &nodepb.Word{}
	return w, proto.Unmarshal(b, w)
}

// Words delivers noded-root's messages other than answers. Closed when the connection has ended.
func (c *Client) Words() <-chan *nodepb.Word { return c.words }

// Gone is closed when the connection has ended.
func (c *Client) Gone() <-chan struct{} { return c.gone }

// Close ends the connection.
func (c *Client) Close() { _ = c.conn.Close() }

func (c *Client) read(r *bufio.Reader) {
	defer close(c.words)
	defer c.end()
	for {
		w, err := readWord(r)
		if err != nil {
			return
		}
		a := w.GetAnswer()
		if a == nil {
			c.words <- w
			continue
		}
		c.mu.Lock()
		ch := c.waiting[a.Id]
		delete(c.waiting, a.Id)
		c.mu.Unlock()
		if ch != nil {
			ch <- a
		}
	}
}

func (c *Client) end() {
	_ = c.conn.Close()
	c.mu.Lock()
	c.waiting = nil
	c.mu.Unlock()
	close(c.gone)
}

// Tell sends a request that is not answered.
func (c *Client) Tell(o *nodepb.Request) { _ = c.out.Put(o) }

// Call sends a request and waits for its answer. When ctx ends, Call cancels the request and still waits for the answer, which
// says what became of it. ErrGone: unknown. A large request waits until others have been answered; if ctx ends before that, it is
// not sent.
func (c *Client) Call(ctx context.Context, o *nodepb.Request) (*nodepb.Answer, error) {
	c.mu.Lock()
	c.last++
	o.Id = c.last
	c.mu.Unlock()
	b, err := proto.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("cannot encode a request: %w", err)
	}
	leave, err := c.room(ctx, b)
	if err != nil {
		return nil, err
	}
	defer leave()
	answer := make(chan *nodepb.Answer, 1)
	c.mu.Lock()
	if c.waiting == nil {
		c.mu.Unlock()
		return nil, ErrGone
	}
	c.waiting[o.Id] = answer
	c.mu.Unlock()
	if err := c.out.put(b); err != nil {
		c.mu.Lock()
		delete(c.waiting, o.Id)
		c.mu.Unlock()
		return nil, err
	}
	ended := ctx.Done()
	for {
		select {
		case a := <-answer:
			return said(a)
		case <-c.gone:
			select {
			case a := <-answer: // the answer was the last message
				return said(a)
			default:
				return nil, ErrGone
			}
		case <-ended:
			ended = nil
			c.Tell(&nodepb.Request{What: &nodepb.Request_Cancel{Cancel: &nodepb.Cancel{Id: o.Id}}})
		}
	}
}

// room waits until a request of this size may be sent.
func (c *Client) room(ctx context.Context, b []byte) (leave func(), err error) {
	n, err := Weight((&nodepb.Request{}).ProtoReflect().Descriptor(), b)
	switch {
	case err != nil:
		return nil, err
	case len(b) > MaxRequest || n > MaxWeight:
		return nil, fmt.Errorf("%w: a request of %d bytes, which take %d of memory", ErrTooLong, len(b), n)
	case n <= Large:
		return func() {}, nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-c.gone:
			cancel(ErrGone)
		case <-ctx.Done():
		}
	}()
	if c.large.Acquire(ctx, n) != nil {
		return nil, context.Cause(ctx)
	}
	return func() { c.large.Release(n) }, nil
}

func said(a *nodepb.Answer) (*nodepb.Answer, error) {
	if a.Error != "" {
		return a, errors.New(a.Error)
	}
	return a, nil
}

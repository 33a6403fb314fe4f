// Package pretend simulates many nodes in one process, to try a configuration or a controller at scale (`sluice up
// --pretend`, `sluice-noded pretend`).
//
// noded-link is real: each node has its own certificate, TLS connection and noded-link (package noded with agent and link), which
// says hello, sends heartbeats, takes orders and reconnects as on any node. noded-root is simulated: it executes nothing and
// creates neither directories nor processes. A job runs as long as the `sleep`s in its script and ends as its `exit` says; time
// limits, signals, suspension and cancelling work as on a script.
package pretend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/sluice-hpc/sluice/conf"
	"github.com/sluice-hpc/sluice/internal/mtls"
	"github.com/sluice-hpc/sluice/noded"
	"github.com/sluice-hpc/sluice/noded/hw"
	"golang.org/x/sync/errgroup"
)

// Options name the nodes to simulate, and their controllers.
type Options struct {
	Nodes       []*conf.Node // hardware as in slurm.conf
	Controllers []string     // host:port
	Conf        string       // path of slurm.conf
	// Certificate returns a node's certificate with its key; it is called once for each node, by several goroutines.
	Certificate func(node string) (mtls.Files, error)
	// Dial connects a node to a controller; nil: from any address.
	Dial func(ctx context.Context, node, addr string) (net.Conn, error)
	Log  *slog.Logger
}

// signers bounds the certificates signed at a time.
const signers = 8

// rebootTime is how long a rebooting node is away.
const rebootTime = 5 * time.Second

// Run simulates the nodes until ctx ends, or the controller has stopped all of them.
func Run(ctx context.Context, o Options) error {
	if len(o.Nodes) == 0 {
		return errors.New("there are no nodes to simulate")
	}
	began := time.Now()
	machines := make([]*machine, len(o.Nodes))
	var sign errgroup.Group
	sign.SetLimit(signers)
	shapes := &shapes{known: map[[3]int]hw.Topology{}}
	for i, n := range o.Nodes {
		sign.Go(func() error {
			files, err := o.Certificate(n.Name)
			if err != nil {
				return fmt.Errorf("node %s: %w", n.Name, err)
			}
			machines[i] = newMachine(&o, n, uint64(i), files, shapes)
			return nil
		})
	}
	if err := sign.Wait(); err != nil {
		return err
	}
	o.Log.Info("certificates signed", "nodes", len(machines), "took", time.Since(began).Round(time.Millisecond))
	var wg sync.WaitGroup
	var once sync.Once
	var failed error
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, m := range machines {
		wg.Go(func() {
			if err := m.run(ctx); err != nil && ctx.Err() == nil {
				once.Do(func() { failed = fmt.Errorf("node %s: %w", m.conf.Name, err) })
				cancel()
			}
		})
	}
	wg.Wait()
	return failed
}

// run runs all boots of a machine.
func (m *machine) run(ctx context.Context) error {
	for {
		again, err := m.boot(ctx)
		if err != nil || !again {
			return err
		}
		m.o.Log.Info("rebooting", "node", m.conf.Name)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(rebootTime):
		}
	}
}

// boot runs one boot of a machine and its daemon. again: it ended with a reboot.
func (m *machine) boot(ctx context.Context) (again bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ours, theirs := net.Pipe()
	s := m.start(ours)
	served := make(chan struct{})
	go func() {
		defer close(served)
		s.serve()
	}()
	dial := m.o.Dial
	var from func(context.Context, string) (net.Conn, error)
	if dial != nil {
		from = func(ctx context.Context, addr string) (net.Conn, error) { return dial(ctx, m.conf.Name, addr) }
	}
	err = noded.LinkFrom(ctx, theirs, s, m.o.Log.With("node", m.conf.Name), from)
	_ = ours.Close()
	<-served
	s.end()
	return s.rebooting, err
}

// shapes shares one topology among identical nodes.
type shapes struct {
	mu    sync.Mutex
	known map[[3]int]hw.Topology
}

func (s *shapes) of(n *conf.Node) hw.Topology {
	key := [3]int{max(1, n.Sockets), max(1, n.CoresPerSocket), max(1, n.ThreadsPerCore)}
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.known[key]
	if !ok {
		t = hw.Build(key[0], key[1], key[2])
		s.known[key] = t
	}
	return t
}

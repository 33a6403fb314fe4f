// Package pretend simulates many nodes in one process, to try a configuration or a controller at scale (`sluice up
// --pretend`, `sluice-noded pretend`).
//
// The half that talks to the controller is real: each node has its own certificate, TLS connection and noded-link
// (package noded with agent and link), which says hello, sends heartbeats, takes orders and connects again as on any
// node. noded-root is simulated: nothing is executed, no directory and no process is made. A job runs as long as its
// script's `sleep`s say and ends as its `exit` says; time limits, signals, suspension and cancelling work as on a
// script.
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

// Options say for which nodes to speak, and to whom.
type Options struct {
	Nodes       []*conf.Node // hardware as slurm.conf has it
	Controllers []string     // host:port
	Conf        string       // path of slurm.conf
	// Certificate gives a node's certificate with its key; it is called once for each node, by several goroutines.
	Certificate func(node string) (mtls.Files, error)
	// Dial connects a node with a controller; nil: from whatever address the kernel picks.
	Dial func(ctx context.Context, node, addr string) (net.Conn, error)
	Log  *slog.Logger
}

// signers bounds the certificates that are signed at a time.
const signers = 8

// rebootTime is how long a node that reboots is away.
const rebootTime = 5 * time.Second

// Run speaks for the nodes until ctx ends, or the controller has told all of them to end.
func Run(ctx context.Context, o Options) error {
	if len(o.Nodes) == 0 {
		return errors.New("there is no node to speak for")
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

// run is all boots of a machine.
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

// boot is one life of a machine and of its daemon. again: it ended with a reboot.
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

// shapes keeps one topology for all nodes that are built alike.
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

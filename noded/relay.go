package noded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sluice-hpc/sluice/internal/trusted"
	"github.com/sluice-hpc/sluice/noded/hostconf"
	"github.com/sluice-hpc/sluice/noded/link"
	"github.com/sluice-hpc/sluice/noded/privsep"
	"github.com/sluice-hpc/sluice/noded/relay"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// RelaySocket is the socket through which commands reach the controller from other hosts (client/wire).
func RelaySocket(cluster string) string { return filepath.Join("/run/sluice", cluster, "relay.sock") }

// listen creates the relay's socket. A compute node still runs jobs without it.
func (o *Options) listen() (*os.File, error) {
	if o.Relay == "" {
		return nil, nil
	}
	f, err := relayAt(o.Relay)
	if err != nil && !o.Login {
		o.Log.Warn("the relay for commands on this host is not available", "err", err)
		return nil, nil
	}
	return f, err
}

func relayAt(path string) (*os.File, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("cannot create the directory of the command socket: %w", err)
	}
	if os.Geteuid() == 0 { // nobody else may redirect the removal and creation in relay.Listen
		if _, err := trusted.Path(dir); err != nil {
			return nil, fmt.Errorf("cannot create the command socket: %w", err)
		}
	}
	return relay.Listen(path)
}

// jobSocket is the value of SLUICE_SOCKET in jobs of this host; empty where commands find the socket by themselves.
func (o *Options) jobSocket() string {
	if o.Socket == "" && o.listening != nil && o.Relay != RelaySocket(o.Cluster) {
		return o.Relay
	}
	return o.Socket
}

// startRelay serves the commands of this host until ctx ends; ended is closed when it has finished.
func startRelay(ctx context.Context, root *privsep.Client, about *nodepb.Welcome, cert *certificate,
	listen func() (*net.UnixListener, error), log *slog.Logger) (ended <-chan struct{}, err error) {
	done := make(chan struct{})
	if !about.Relay {
		close(done)
		return done, nil
	}
	l, err := listen()
	if err != nil {
		return nil, err
	}
	o := relay.Options{Listener: l, Host: about.Node, Controllers: about.Controllers, TLS: cert.Config(),
		Followed: cert.followed, Most: relay.NodeCalls,
		Keep: about.Login,
		User: (&names{root: root, known: map[uint32]name{}}).find, Log: log, Renewed: cert.renewed}
	if about.Login {
		o.Signs = cert.signed
		o.Most = relay.LoginCalls
	}
	go func() {
		defer close(done)
		if err := relay.Run(ctx, o); err != nil {
			log.Error("the relay for commands on this host has ended", "err", err)
		}
	}()
	return done, nil
}

// login is noded-link on a login host; it ends with noded-root. A host without files of its own follows the controller's
// configuration.
func login(ctx context.Context, root *privsep.Client, about *nodepb.Welcome, cert *certificate, log *slog.Logger,
	level *slog.LevelVar) error {
	if level != nil {
		level.Set(slog.Level(about.LogLevel))
	}
	stop := context.AfterFunc(ctx, root.Close)
	defer stop()
	defer cert.keep(ctx, root, about, log)()
	f := &follower{root: root}
	if about.GetConfiguration().GetFetched() {
		var done func()
		f, done = follow(ctx, root, about, cert, log)
		defer done()
	}
	for w := range root.Words() {
		if c := w.GetConfiguration(); c != nil {
			f.took(c)
		}
		if r := w.GetReread(); r != nil && level != nil && !r.KeepLevel {
			level.Set(slog.Level(r.LogLevel))
		}
	}
	return nil
}

// follower passes each configuration that the controller puts in force to noded-root.
type follower struct {
	root *privsep.Client

	mu      sync.Mutex
	offered *pb.Configuration // nil: it is in force
	again   *time.Timer
}

// offerPause is the pause before a configuration that could not be put in force, perhaps because the disk is full, is offered
// again.
const offerPause = time.Minute

func follow(ctx context.Context, root *privsep.Client, about *nodepb.Welcome, cert *certificate, log *slog.Logger) (f *follower,
	stop func()) {
	f = &follower{root: root}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	have := about.Configuration.Hash
	go func() {
		defer close(done)
		link.Configurations(ctx, link.Options{Controllers: about.Controllers, TLS: cert.Config(), Followed: cert.followed,
			Log: log}, func(c *pb.Configuration) {
			if hash := hostconf.Hash(c.Bundle); hash != have {
				have = hash
				f.offer(c)
			}
		})
	}()
	return f, func() { cancel(); <-done; f.took(&pb.ConfigurationState{}) }
}

func (f *follower) offer(c *pb.Configuration) {
	f.mu.Lock()
	f.offered = c
	f.mu.Unlock()
	f.root.Tell(&nodepb.Request{What: &nodepb.Request_Configuration{Configuration: c}})
}

// took notes the outcome of a configuration, and schedules a retry on failure: the obstacle may pass.
func (f *follower) took(c *pb.ConfigurationState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.again != nil {
		f.again.Stop()
	}
	if c.GetError() == "" || f.offered == nil {
		f.offered = nil
		return
	}
	f.again = time.AfterFunc(offerPause, func() {
		f.mu.Lock()
		c := f.offered
		f.mu.Unlock()
		if c != nil {
			f.offer(c)
		}
	})
}

// names caches noded-root's answers about users, since it may have to ask a directory service.
type names struct {
	root *privsep.Client

	mu    sync.Mutex
	known map[uint32]name
}

type name struct {
	text  string
	until time.Time
}

// nameTTL is how long a name is cached, strangerTTL how long the lack of one, and maxNames bounds the cache.
const (
	nameTTL     = time.Minute
	strangerTTL = 5 * time.Second
	maxNames    = 10000
)

func (n *names) find(ctx context.Context, uid uint32) (string, error) {
	n.mu.Lock()
	have, ok := n.known[uid]
	n.mu.Unlock()
	now := time.Now()
	if ok && now.Before(have.until) {
		return have.text, nil
	}
	a, err := n.root.Call(ctx, &nodepb.Request{What: &nodepb.Request_Who{Who: &nodepb.Who{Uid: uid}}})
	switch {
	case errors.Is(err, privsep.ErrGone):
		return "", err
	case err != nil && ok: // the directory service does not answer at present
		return have.text, nil
	case err != nil:
		return "", err
	}
	ttl := nameTTL
	if a.User == "" {
		ttl = strangerTTL
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.known) >= maxNames {
		clear(n.known)
	}
	n.known[uid] = name{a.User, now.Add(ttl)}
	return a.User, nil
}

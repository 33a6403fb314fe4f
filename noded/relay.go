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

// RelaySocket is where commands on a host that is not the controller's look for a way to it (client/wire).
func RelaySocket(cluster string) string { return filepath.Join("/run/sluice", cluster, "relay.sock") }

// listen makes the socket of the relay. A compute host runs jobs also where it cannot be made.
func (o *Options) listen() (*os.File, error) {
	if o.Relay == "" {
		return nil, nil
	}
	f, err := relayAt(o.Relay)
	if err != nil && !o.Login {
		o.Log.Warn("commands on this host do not reach the controller through this daemon", "err", err)
		return nil, nil
	}
	return f, err
}

func relayAt(path string) (*os.File, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("cannot make the folder of the socket for commands: %w", err)
	}
	if os.Geteuid() == 0 { // what is removed and made there is what this daemon means
		if _, err := trusted.Path(dir); err != nil {
			return nil, fmt.Errorf("cannot make the socket for commands: %w", err)
		}
	}
	return relay.Listen(path)
}

// jobSocket is what SLUICE_SOCKET is in jobs of this host: nothing where commands find the way by themselves.
func (o *Options) jobSocket() string {
	if o.Socket == "" && o.listening != nil && o.Relay != RelaySocket(o.Cluster) {
		return o.Relay
	}
	return o.Socket
}

// startRelay serves the commands of this host until ctx ends.
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
			log.Error("commands on this host do not reach the controller any more", "err", err)
		}
	}()
	return done, nil
}

// login is noded-link of a login host: it ends with its root half. A host without files of its own follows the controller's.
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

// follower has the root half told of each configuration that the controller puts in force.
type follower struct {
	root *privsep.Client

	mu      sync.Mutex
	offered *pb.Configuration // nil: it is in force
	again   *time.Timer
}

// offerPause is how long a configuration that could not be put in force, perhaps for a full disk, is left alone.
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

// took takes in what became of a configuration. What kept it from being in force may pass.
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

// names remembers for a while what the root half has said of users: it may have to ask a directory service.
type names struct {
	root *privsep.Client

	mu    sync.Mutex
	known map[uint32]name
}

type name struct {
	text  string
	until time.Time
}

// How long a name is remembered, and that there is none, and how many are.
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
	case err != nil && ok: // the directory does not answer at present
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

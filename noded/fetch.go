package noded

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"

	"github.com/sluice-hpc/sluice/internal/mtls"
	"github.com/sluice-hpc/sluice/internal/version"
	"github.com/sluice-hpc/sluice/noded/hostconf"
	"github.com/sluice-hpc/sluice/noded/link"
	"github.com/sluice-hpc/sluice/noded/privsep"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// FetchOptions are the options of Fetch.
type FetchOptions struct {
	NodeName    string
	Controllers []string // host:port, tried in turn
	Files       mtls.Files
	Store       *hostconf.Store
	Log         *slog.Logger
	// Apart is as in Options; nil: noded-link runs within this process.
	Apart func(*os.File) (wait func() error, err error)
}

// Fetch gets the configuration from the controller for a host that has none and cannot start without. It tries until it has
// stored one, or ctx ends. As later, a noded-link does the network part and stores nothing itself.
func Fetch(ctx context.Context, o FetchOptions) (*hostconf.Bundle, error) {
	for wait := firstPause; ; wait = min(2*wait, lastPause) {
		b, err := o.once(ctx)
		if err == nil || ctx.Err() != nil {
			return b, err
		}
		o.Log.Error("cannot get the configuration from the controller: will keep trying", "err", err)
		pause(ctx, wait)
	}
}

// once runs one noded-link, which ends when it has delivered a configuration, accepted or not.
func (o *FetchOptions) once(ctx context.Context) (*hostconf.Bundle, error) {
	ours, theirs, err := privsep.Pair()
	if err != nil {
		return nil, err
	}
	defer ours.Close()
	start := o.Apart
	if start == nil {
		start = func(f *os.File) (func() error, error) { return o.within(ctx, f) }
	}
	wait, err := start(theirs)
	_ = theirs.Close()
	if err != nil {
		return nil, fmt.Errorf("cannot start noded-link: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = ours.Close() })
	b, err := o.take(ours)
	stop()
	_ = ours.Close()
	if werr := wait(); err != nil && werr != nil {
		err = fmt.Errorf("%w; %w", err, werr)
	}
	if ctx.Err() != nil && b == nil {
		return nil, ctx.Err()
	}
	return b, err
}

func (o *FetchOptions) take(conn net.Conn) (*hostconf.Bundle, error) {
	out, err := privsep.Append(nil, &nodepb.Word{What: &nodepb.Word_Welcome{Welcome: &nodepb.Welcome{Node: o.NodeName,
		Controllers: o.Controllers, Ca: o.Files.Authority, Certificate: o.Files.Certificate, Key: o.Files.Key, First: true,
		Build: version.Ours.String()}}})
	if err != nil {
		return nil, err
	}
	if _, err := conn.Write(out); err != nil {
		return nil, err
	}
	raw, err := privsep.Read(bufio.NewReader(conn), privsep.MaxRequest)
	if err != nil {
		return nil, fmt.Errorf("noded-link has gone: %w", err)
	}
	order := &nodepb.Request{}
	if err := proto.Unmarshal(raw, order); err != nil || order.GetConfiguration() == nil {
		return nil, errors.New("noded-link sent something other than a configuration")
	}
	return o.Store.Put(order.GetConfiguration())
}

func (o *FetchOptions) within(ctx context.Context, f *os.File) (wait func() error, err error) {
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	done := make(chan error, 1)
	go func() { done <- Link(ctx, conn, Sockets{}, nil, o.Log, nil) }()
	return func() error { return <-done }, nil
}

// fetch is noded-link's side of Fetch: it passes on the controller's configurations until noded-root closes the connection.
func fetch(ctx context.Context, client *privsep.Client, about *nodepb.Welcome, log *slog.Logger) error {
	tls, err := mtls.HostFrom(mtls.Files{Authority: about.Ca, Certificate: about.Certificate, Key: about.Key})
	if err != nil {
		client.Close()
		for range client.Words() {
		}
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		link.Configurations(ctx, link.Options{Controllers: about.Controllers, TLS: tls, Log: log}, func(c *pb.Configuration) {
			client.Tell(&nodepb.Request{What: &nodepb.Request_Configuration{Configuration: c}})
		})
	}()
	select {
	case <-client.Gone():
	case <-ctx.Done():
	}
	cancel()
	client.Close()
	for range client.Words() {
	}
	<-done
	return nil
}

// configured notes the outcome of a configuration.
func (n *node) configured(c *pb.ConfigurationState) {
	n.conf, n.confNews = c, true
	if c.GetError() == "" {
		n.offered = nil
	}
}

// offer passes a configuration to noded-root and keeps it until it is in force: an obstacle such as a full disk may pass.
func (n *node) offer(c *pb.Configuration) {
	n.offered = c
	n.root.Tell(&nodepb.Request{What: &nodepb.Request_Configuration{Configuration: c}})
}

// offerAgain retries with each heartbeat.
func (n *node) offerAgain() {
	if n.offered != nil && n.conf.GetError() != "" {
		n.offer(n.offered)
	}
}

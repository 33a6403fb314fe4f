package noded

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/sluice-hpc/sluice/internal/mtls"
	"github.com/sluice-hpc/sluice/internal/version"
	"github.com/sluice-hpc/sluice/noded/greet"
	"github.com/sluice-hpc/sluice/noded/privsep"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
)

// certificate is this host's certificate, used for all of its connections.
type certificate struct {
	mtls.Live
	renewed chan struct{} // tells the relay
	signs   chan string   // the CA that signs, as the relay has learnt
	// followed decides which controllers to accept on these connections.
	followed *greet.Followed
}

func newCertificate(root *privsep.Client, about *nodepb.Welcome) (*certificate, error) {
	c := &certificate{renewed: make(chan struct{}, 1), signs: make(chan string, 1)}
	c.followed = greet.NewFollowed(about.Node, version.Generation{Cluster: about.Followed.GetClusterId(),
		Number: about.Followed.GetGeneration()}, func(g version.Generation, refused string) error {
		_, err := root.Call(context.Background(), &nodepb.Request{What: &nodepb.Request_Follow{Follow: &nodepb.Follow{ClusterId: g.Cluster,
			Generation: g.Number, Refused: refused}}})
		return err
	})
	return c, c.Set(mtls.Files{Authority: about.Ca, Certificate: about.Certificate, Key: about.Key})
}

// replace puts another certificate in force.
func (c *certificate) replace(f mtls.Files) error {
	if err := c.Set(f); err != nil {
		return err
	}
	select {
	case c.renewed <- struct{}{}:
	default: // the last notice is still unread
	}
	return nil
}

// signed notes the CA that signs.
func (c *certificate) signed(authority string) {
	select {
	case c.signs <- authority:
	default: // the next call repeats it
	}
}

// keep renews the certificate of a login host, which has no node.loop, until stop is called. The controller's answers to commands
// say when another CA signs.
func (c *certificate) keep(ctx context.Context, root *privsep.Client, about *nodepb.Welcome, log *slog.Logger) (stop func()) {
	r := &renewal{}
	if err := r.begin(mtls.Files{Authority: about.Ca, Certificate: about.Certificate, Key: about.Key}); err != nil {
		log.Error("the certificate of this host will not be renewed", "err", err)
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer r.stop()
		for {
			select {
			case <-ctx.Done():
				return
			case a := <-c.signs:
				r.replaced(a)
				continue
			case <-r.timer.C:
			}
			if time.Now().Before(r.next) {
				r.wait()
				continue
			}
			c.renew(ctx, r, root, about, log)
		}
	}()
	return func() { cancel(); <-done }
}

func (c *certificate) renew(ctx context.Context, r *renewal, root *privsep.Client, about *nodepb.Welcome, log *slog.Logger) {
	f, err := nextCertificate(ctx, root, about.Controllers, c)
	if err == nil {
		err = errors.Join(c.replace(f), r.begin(f))
	}
	if err == nil {
		log.Info("the certificate of this host was renewed", "until", r.leaf.NotAfter, "serial", mtls.Serial(r.leaf))
		return
	}
	r.failed()
	r.wait()
	if r.said != err.Error() && ctx.Err() == nil {
		r.said = err.Error()
		log.Warn("cannot renew the certificate of this host: will keep trying", "ends", r.leaf.NotAfter, "err", err)
	}
}

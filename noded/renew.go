package noded

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sluice-hpc/sluice/internal/mtls"
	"github.com/sluice-hpc/sluice/noded/link"
	"github.com/sluice-hpc/sluice/noded/privsep"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
)

// renewal renews the certificate of this host at two thirds of its life, and when another authority signs than the one that it is of. When
// that fails, because the controller is away, it is retried until the certificate has ended.
type renewal struct {
	leaf  *x509.Certificate
	next  time.Time // when it is due
	timer *time.Timer
	busy  bool
	said  string
}

// Limits of renewals: how often it is looked whether one is due, since clocks are set, the pause after one that failed, and how far the
// hosts of a cluster whose authority is replaced spread theirs.
const (
	renewalLook  = time.Minute
	firstRetry   = time.Second
	lastRetry    = time.Hour
	renewTimeout = 30 * time.Second
	renewSpread  = 5 * time.Second
)

// errRenewed is why a node ends its own stream when it has a new certificate: the next one shows that.
var errRenewed = errors.New("the certificate of this host was renewed: registering with the new one")

func (r *renewal) begin(f mtls.Files) error {
	leaf, err := mtls.LeafOf(f)
	if err != nil {
		return err
	}
	r.leaf, r.next, r.said = leaf, mtls.RenewAt(leaf), ""
	r.wait()
	return nil
}

func (r *renewal) wait() {
	d := max(0, min(time.Until(r.next), renewalLook))
	if r.timer == nil {
		r.timer = time.NewTimer(d)
	} else {
		r.timer.Reset(d)
	}
}

func (r *renewal) stop() { r.timer.Stop() }

// failed plans the next attempt: soon, but not so often that a controller which is away for a day hears of it when it is back.
func (r *renewal) failed() {
	d := min(max(time.Until(r.leaf.NotAfter)/20, firstRetry), lastRetry)
	r.next = time.Now().Add(d/2 + rand.N(d/2+1))
}

// replaced is told which authority signs now.
func (r *renewal) replaced(authority string) {
	if authority == "" || authority == mtls.SignerOf(r.leaf) {
		return
	}
	if soon := time.Now().Add(rand.N(renewSpread)); soon.Before(r.next) {
		r.next = soon
		r.wait()
	}
}

// renewCertificate is for when the timer has fired.
func (n *node) renewCertificate(ctx context.Context) {
	r := &n.renewal
	if r.busy || time.Now().Before(r.next) {
		r.wait()
		return
	}
	r.busy = true
	n.work(ctx, func() func() {
		f, err := nextCertificate(ctx, n.root, n.about.Controllers, n.cert)
		return func() {
			r.busy = false
			if err == nil {
				err = errors.Join(n.cert.replace(f), r.begin(f))
			}
			if err != nil {
				r.failed()
				r.wait()
				if r.said != err.Error() {
					r.said = err.Error()
					n.log.Warn("cannot renew the certificate of this host: will keep trying", "ends", r.leaf.NotAfter, "err", err)
				}
				return
			}
			n.log.Info("the certificate of this host was renewed", "until", r.leaf.NotAfter, "serial", mtls.Serial(r.leaf))
			if n.stream != nil {
				n.stream.Refuse(errRenewed)
				n.stream = nil
			}
		}
	})
}

// nextCertificate has noded-root make a key, the controller certify it, and noded-root keep that.
func nextCertificate(ctx context.Context, root *privsep.Client, controllers []string, cert *certificate) (f mtls.Files, err error) {
	a, err := root.Call(ctx, &nodepb.Request{What: &nodepb.Request_MakeKey{MakeKey: &nodepb.MakeKey{}}})
	if err != nil {
		return f, err
	}
	var reply *nodepb.CertificateReply
	for _, addr := range controllers {
		if reply, err = askRenewal(ctx, link.Options{TLS: cert.Config(), Followed: cert.followed}, addr, a.Request); err == nil {
			break
		}
	}
	if err != nil {
		return f, err
	}
	a, err = root.Call(ctx, &nodepb.Request{What: &nodepb.Request_Certify{Certify: &nodepb.Certify{Certificate: reply.Certificate,
		Authorities: reply.Authorities}}})
	if err != nil {
		return f, err
	}
	return mtls.Files{Authority: a.Ca, Certificate: a.Certificate, Key: a.Key}, nil
}

func askRenewal(ctx context.Context, o link.Options, addr string, request []byte) (*nodepb.CertificateReply, error) {
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	conn, err := link.Dial(o, addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	reply, err := nodepb.NewEnrolAPIClient(conn).Renew(ctx, &nodepb.RenewRequest{Request: request})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", addr, err)
	}
	return reply, nil
}

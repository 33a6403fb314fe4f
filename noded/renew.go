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

// renewal renews this host's certificate after two thirds of its life, or when another CA has started to sign. If that fails
// because the controller is away, it retries until the certificate has expired.
type renewal struct {
	leaf  *x509.Certificate
	next  time.Time // when the renewal is due
	timer *time.Timer
	busy  bool
	said  string
}

// Limits of renewals. renewalLook bounds the timer, because clocks are set. renewSpread spreads the renewals of a cluster whose
// CA was replaced.
const (
	renewalLook  = time.Minute
	firstRetry   = time.Second
	lastRetry    = time.Hour
	renewTimeout = 30 * time.Second
	renewSpread  = 5 * time.Second
)

// errRenewed ends the node's own stream after a renewal: the next one presents the new certificate.
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

// failed plans the next attempt: soon, but not so often that a controller that is back after a day is flooded.
func (r *renewal) failed() {
	d := min(max(time.Until(r.leaf.NotAfter)/20, firstRetry), lastRetry)
	r.next = time.Now().Add(d/2 + rand.N(d/2+1))
}

// replaced notes the CA that signs now, and advances the renewal if the certificate is from another one.
func (r *renewal) replaced(authority string) {
	if authority == "" || authority == mtls.SignerOf(r.leaf) {
		return
	}
	if soon := time.Now().Add(rand.N(renewSpread)); soon.Before(r.next) {
		r.next = soon
		r.wait()
	}
}

// renewCertificate runs when the timer fires.
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

// nextCertificate obtains a new certificate: noded-root makes the key, a controller certifies it, and noded-root stores both.
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

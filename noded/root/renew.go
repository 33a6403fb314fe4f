package root

import (
	"context"
	"errors"

	"github.com/sluice-hpc/sluice/internal/mtls"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
)

// makeKey makes the next key of this host. It stays here until it has a certificate.
func (r *Root) makeKey(context.Context, *nodepb.Request) (*nodepb.Answer, error) {
	key, b, err := mtls.MakeKey()
	if err != nil {
		return nil, err
	}
	request, err := mtls.Request(key, r.o.Identity)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.nextKey = b
	r.mu.Unlock()
	return &nodepb.Answer{Request: request}, nil
}

// certify puts the certificate for the next key in force. noded-link got it from the network, so it must be for this host, and
// come with CAs that the current ones vouch for.
func (r *Root) certify(_ context.Context, o *nodepb.Request) (*nodepb.Answer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.nextKey == nil || r.o.Welcome == nil {
		return nil, errors.New("no key waits for a certificate")
	}
	c, w := o.GetCertify(), r.o.Welcome
	f := mtls.Files{Authority: c.GetAuthorities(), Certificate: c.GetCertificate(), Key: r.nextKey}
	if err := errors.Join(mtls.Accept(f, r.o.Identity), mtls.Follows(w.GetCa(), f.Authority)); err != nil {
		return &nodepb.Answer{Refused: true}, err
	}
	if err := mtls.Store(r.o.TLS, r.o.Identity.Role, f); err != nil {
		return nil, err
	}
	w.Ca, w.Certificate, w.Key, r.nextKey = f.Authority, f.Certificate, f.Key, nil
	r.log.Info("renewed the certificate of this host")
	return &nodepb.Answer{Ca: f.Authority, Certificate: f.Certificate, Key: f.Key}, nil
}

package ctld

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sluice-hpc/sluice/ctld/ca"
	"github.com/sluice-hpc/sluice/ctld/loop"
	"github.com/sluice-hpc/sluice/ctld/nodeport"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/rpc"
	"github.com/sluice-hpc/sluice/internal/mtls"
)

// certificates holds the trusted authorities, and the controller's own certificate.
type certificates struct {
	ca.Signer
	tls     atomic.Pointer[tls.Config]
	signing atomic.Pointer[signing]
}

// signing identifies the signing authority, from its files at the last look. Nodes get it with their settings.
type signing struct {
	crt, key fs.FileInfo
	id       string
}

// authorityEnds is the time before the authority's end at which warnings begin.
const authorityEnds = 365 * 24 * time.Hour

// loadTrust reads the authority, or makes it, and gives the controller a certificate if it needs one. It is repeated when the configuration
// is read again.
func (d *daemon) loadTrust() error {
	t := &d.certs
	if t.Dir == "" {
		t.Dir, t.Now, t.Life = filepath.Join(d.opts.State, "tls"), time.Now, d.opts.CertificateLife
		if t.Life == 0 {
			t.Life = ca.HostLife
		}
	}
	if err := ca.Ensure(t.Dir); err != nil {
		return err
	}
	if err := ca.CheckFiles(t.Dir); err != nil {
		return err
	}
	if _, err := ca.Provide(t.Dir, t.Dir, d.conf.Load().ClusterName, mtls.RoleController, d.names()); err != nil {
		return err
	}
	cfg, err := ca.ServerTLS(t.Dir)
	if err != nil {
		return err
	}
	t.tls.Store(cfg)
	_, all, err := t.trusted()
	if err != nil {
		return err
	}
	for _, a := range all {
		if left := time.Until(a.NotAfter); left < authorityEnds {
			d.log.Warn("the cluster's certificate authority expires soon: run sluice-ctld authority --extend", "authority",
				mtls.AuthorityID(a), "ends", a.NotAfter, "days", int(left.Hours()/24))
		}
	}
	return nil
}

// config returns the TLS configuration of the node port: always the one loaded last.
func (t *certificates) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return t.tls.Load(), nil }}
}

// trusted returns the controller's certificate and those of the authorities, the signing one first.
func (t *certificates) trusted() (own *x509.Certificate, all []*x509.Certificate, err error) {
	cfg := t.tls.Load()
	if cfg == nil || len(cfg.Certificates) == 0 {
		return nil, nil, errors.New("the controller has no certificate")
	}
	if own, err = x509.ParseCertificate(cfg.Certificates[0].Certificate[0]); err != nil {
		return nil, nil, err
	}
	all, err = ca.Authorities(t.Dir)
	return own, all, err
}

// signs returns the AuthorityID of the signing authority, "" when unknown.
func (t *certificates) signs() string {
	crt, key := ca.Files(t.Dir)
	now := signing{}
	now.crt, _ = os.Stat(crt)
	now.key, _ = os.Stat(key)
	if old := t.signing.Load(); old != nil && unchanged(old.crt, now.crt) && unchanged(old.key, now.key) {
		return old.id
	}
	if _, all, err := t.trusted(); err == nil {
		now.id = mtls.AuthorityID(all[0])
	}
	t.signing.Store(&now)
	return now.id
}

// unchanged reports whether a file, which is only replaced by renames, is still the same.
func unchanged(a, b fs.FileInfo) bool {
	return a != nil && b != nil && os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

func (d *daemon) enrolment(door *nodeport.Door, port int) rpc.Enrolment {
	return rpc.Enrolment{Trust: d.certs.trusted, Shown: door.Shown, Cut: door.Cut, TakeIn: d.takeIn, Addresses: func() []string {
		var all []string
		for _, h := range d.conf.Load().SlurmctldHosts {
			all = append(all, net.JoinHostPort(h.Addr, fmt.Sprint(port)))
		}
		return all
	}}
}

// accepts reports whether a certificate of the authority is valid. An unknown one for a revoked name may have been issued by hand since.
func (d *daemon) accepts(name, serial string) bool {
	v := d.loop.View()
	if v.Accepts(name, serial) {
		return true
	}
	if v.Certificate(name, serial) != nil {
		return false
	}
	if _, err := os.Stat(filepath.Join(issuedDir(d.certs.Dir), serial+".crt")); err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	d.takeIn(ctx)
	return d.loop.View().Accepts(name, serial)
}

// met notes a host's report about itself in a call.
func (d *daemon) met(serial, release string, ahead time.Duration) {
	if door := d.door.Load(); door != nil {
		door.Met(serial, release, ahead)
	}
}

// issuedDir returns the directory in which sluice-ctld issue leaves a copy of each certificate for the controller.
func issuedDir(tlsDir string) string { return filepath.Join(tlsDir, "issued") }

// maxTakeIn bounds the certificates that are recorded at a time.
const maxTakeIn = 10000

// takeIn records the certificates that sluice-ctld issue has issued.
func (d *daemon) takeIn(ctx context.Context) {
	dir := issuedDir(d.certs.Dir)
	f, err := os.Open(dir)
	if err != nil {
		return
	}
	names, _ := f.Readdirnames(maxTakeIn)
	_ = f.Close()
	for _, name := range names {
		if !strings.HasSuffix(name, ".crt") {
			continue
		}
		path := filepath.Join(dir, name)
		c, err := d.issued(path)
		if err == nil {
			_, err = d.loop.Do(loop.ForNode(ctx, ""), reactor.Certified{Name: c.Subject.CommonName,
				Record: rpc.CertificateRecord(c, c.Subject.OrganizationalUnit[0], "issue")})
		}
		if errors.Is(err, loop.ErrBusy) || ctx.Err() != nil {
			return
		}
		if err != nil {
			d.log.Warn("cannot register a certificate issued by sluice-ctld issue", "file", path, "err", err)
		}
		_ = os.Remove(path)
	}
}

// issued reads a certificate that was issued by hand. Users who can write there can also sign; it is checked nevertheless.
func (d *daemon) issued(path string) (*x509.Certificate, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(b)
	if block == nil {
		return nil, errors.New("it is not PEM")
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, err
	}
	_, all, err := d.certs.trusted()
	if err != nil {
		return nil, err
	}
	for _, a := range all {
		if c.CheckSignatureFrom(a) == nil && len(c.Subject.OrganizationalUnit) == 1 {
			return c, nil
		}
	}
	return nil, errors.New("this cluster's authority did not sign it")
}

// portOf returns the port of a listener, 0 when it has none.
func portOf(l net.Listener) int {
	if a, ok := l.Addr().(*net.TCPAddr); ok {
		return a.Port
	}
	return 0
}

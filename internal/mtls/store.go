package mtls

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
)

// Write replaces a file atomically: after a crash it is either the old or the new one.
func Write(path string, mode os.FileMode, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	return nil
}

// NewKey is the file of a key whose certificate has been requested, beside that of the role: a host that is stopped meanwhile
// repeats the request with the same key.
func NewKey(dir, role string) string { return filepath.Join(dir, role+".key.new") }

// Accept checks a newly issued certificate: it must match the host's key and identity, be signed by one of the authorities that
// came with it, and be valid now.
func Accept(f Files, id Identity) error {
	pair, err := tls.X509KeyPair(f.Certificate, f.Key)
	if err != nil {
		return fmt.Errorf("cannot use the certificate that was issued: %w", err)
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return fmt.Errorf("cannot use the certificate that was issued: %w", err)
	}
	pool, err := authority(f.Authority, "what came with the certificate")
	if err != nil {
		return err
	}
	got, err := verify([]*x509.Certificate{leaf}, pool, x509.ExtKeyUsageClientAuth, id.Role)
	if err != nil {
		return err
	}
	if got != id {
		return fmt.Errorf("cannot use the certificate that was issued: it is for %s %q, and this is %s %q", got.Role, got.Name,
			id.Role, id.Name)
	}
	return nil
}

// Follows checks a new set of authorities against the current one: each must have the key of a current one or be signed by one. A
// host that accepted unrelated authorities by mistake would be lost.
func Follows(now, next []byte) error {
	old, err := ParseAuthorities(now, "the cluster's authority")
	if err != nil {
		return err
	}
	fresh, err := ParseAuthorities(next, "the cluster's next authority")
	if err != nil {
		return err
	}
	for _, c := range fresh {
		known := false
		for _, o := range old {
			known = known || bytes.Equal(c.RawSubjectPublicKeyInfo, o.RawSubjectPublicKeyInfo) || c.CheckSignatureFrom(o) == nil
		}
		if !known {
			return fmt.Errorf("cannot believe the authority %q: none that this host believes has signed it", c.Subject.CommonName)
		}
	}
	return nil
}

// Store writes a certificate, its key and the authorities into a host's directory. If interrupted at any point, the directory has a
// usable pair or none: the certificate is also in the key file, and a pair that the new authorities do not certify is removed
// before they are written.
func Store(dir, role string, f Files) error {
	ca, crt, key := Paths(dir, role)
	if oldCrt, oldKey, err := readPair(crt, key); err == nil && !goodWith(f.Authority, oldCrt, oldKey) {
		if err := errors.Join(gone(key), gone(crt)); err != nil {
			return err
		}
	}
	pair := append(bytes.TrimRight(bytes.Clone(f.Key), "\n"), '\n')
	return errors.Join(Write(ca, 0o644, f.Authority), Write(key, 0o600, append(pair, f.Certificate...)), Write(crt, 0o644, f.Certificate))
}

func goodWith(authorities, crt, key []byte) bool {
	pair, err := tls.X509KeyPair(crt, key)
	if err != nil {
		return false
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return false
	}
	pool, err := authority(authorities, "")
	if err != nil {
		return false
	}
	_, err = leaf.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err == nil
}

func gone(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// PendingKey returns the key of an unanswered certificate request, or a new key.
func PendingKey(dir, role string) (*ecdsa.PrivateKey, []byte, error) {
	path := NewKey(dir, role)
	if b, err := os.ReadFile(path); err == nil {
		if key, err := ReadKey(b); err == nil {
			return key, b, nil
		}
	}
	key, b, err := MakeKey()
	if err != nil {
		return nil, nil, err
	}
	return key, b, Write(path, 0o600, b)
}

// LeafOf parses the certificate in a host's files.
func LeafOf(f Files) (*x509.Certificate, error) {
	block, _ := pem.Decode(f.Certificate)
	if block == nil {
		return nil, errors.New("cannot read the certificate of this host: it is not PEM")
	}
	return x509.ParseCertificate(block.Bytes)
}

// Live is a host's certificate that is renewed while in use.
type Live struct{ now atomic.Pointer[live] }

type live struct {
	cert tls.Certificate
	pool *x509.CertPool
}

// Set replaces the files; existing connections are unaffected.
func (l *Live) Set(f Files) error {
	pool, err := authority(f.Authority, "the cluster's authority")
	if err != nil {
		return err
	}
	cert, err := tls.X509KeyPair(f.Certificate, f.Key)
	if err != nil {
		return fmt.Errorf("cannot use the certificate of this host: %w", err)
	}
	l.now.Store(&live{cert, pool})
	return nil
}

// Server is tls.Config.GetConfigForClient for a port of this host that serves other clients than the controller: a client
// certificate must be of this cluster, and PeerOf returns its holder.
func (l *Live) Server(*tls.ClientHelloInfo) (*tls.Config, error) {
	now := l.now.Load()
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{now.cert}, ClientCAs: now.pool,
		ClientAuth: tls.VerifyClientCertIfGiven, SessionTicketsDisabled: true}, nil
}

// Config returns the configuration with which this host connects to a controller, with the files of the last Set.
func (l *Live) Config() *tls.Config {
	return &tls.Config{
		MinVersion:           tls.VersionTLS13,
		InsecureSkipVerify:   true, // as in client
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &l.now.Load().cert, nil },
		VerifyConnection: func(cs tls.ConnectionState) error {
			_, err := verify(cs.PeerCertificates, l.now.Load().pool, x509.ExtKeyUsageServerAuth, RoleController)
			return err
		},
	}
}

// Package mtls authenticates controller and hosts to each other: TLS 1.3 with certificates of the cluster's own authority on both
// sides, and a role and a name in each certificate.
//
// A certificate's organizational unit is its role, its common name the name of the node or controller. Peers are checked by
// authority and role, not by host name: addresses of nodes change, and this authority issues certificates with the role "ctld" only
// to controllers. A node's key therefore represents that node alone: it cannot pose as the controller or as another node.
//
// A directory holds ca.crt, and ROLE.crt with ROLE.key: node.crt and node.key on a node, login.crt and login.key on a login host,
// ctld.crt and ctld.key on a controller. ca.crt may hold several authorities, all of which are trusted; this allows replacing one.
// ROLE.key may also hold the certificate, which then takes precedence: two files cannot be replaced atomically, one can, by a
// rename.
package mtls

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// The roles.
const (
	RoleController = "ctld"
	RoleNode       = "node"  // a compute host
	RoleLogin      = "login" // a host whose daemon only relays its users' commands
	// RoleMonitor is a program that may read metrics (package metrics) and nothing else: no other port accepts it.
	RoleMonitor = "monitor"
)

// RelayServerName is the TLS server name (SNI) by which a host's relay requests the controller's RelayAPI. It selects the service
// and says nothing about the client's identity.
const RelayServerName = "relay.sluice.invalid"

// ServerName is in the certificate of every host of a role, besides its other names. A program that reads metrics verifies it, to
// be sure that it speaks to a node or the controller of the cluster under any address. Prometheus supports a single server name for
// all targets of a job, and a controller keeps its certificate when it moves.
func ServerName(role string) string { return role + ".sluice.invalid" }

// ErrPeer is wrapped by every error that rejects the other side.
var ErrPeer = errors.New("unexpected peer")

// Identity is the holder of a verified certificate.
type Identity struct {
	Role string
	Name string
}

// Paths returns the files of a role in a directory.
func Paths(dir, role string) (caCrt, crt, key string) {
	return filepath.Join(dir, "ca.crt"), filepath.Join(dir, role+".crt"), filepath.Join(dir, role+".key")
}

// Host returns the configuration with which a host's daemon connects to a controller. role is RoleNode or RoleLogin.
func Host(dir, role string) (*tls.Config, error) {
	cert, pool, err := load(dir, role)
	if err != nil {
		return nil, err
	}
	return client(cert, pool), nil
}

// Files are the contents of a role's files.
type Files struct{ Authority, Certificate, Key []byte }

// HostFiles reads the files of a host and checks that they belong together, for a process that cannot read them itself: see
// HostFrom.
func HostFiles(dir, role string) (f Files, err error) {
	if _, err := Host(dir, role); err != nil {
		return f, err
	}
	ca, crt, key := Paths(dir, role)
	if f.Authority, err = os.ReadFile(ca); err != nil {
		return Files{}, err
	}
	if f.Certificate, f.Key, err = readPair(crt, key); err != nil {
		return Files{}, err
	}
	return f, nil
}

// NameIn returns the name in the certificate of a role in a directory.
func NameIn(dir, role string) (string, error) {
	f, err := HostFiles(dir, role)
	if err != nil {
		return "", err
	}
	block, _ := pem.Decode(f.Certificate) // HostFiles has parsed it
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "", err
	}
	return c.Subject.CommonName, nil
}

// readPair reads a certificate and its key.
func readPair(crtPath, keyPath string) (crt, key []byte, err error) {
	if key, err = os.ReadFile(keyPath); err != nil {
		return nil, nil, err
	}
	if crt = certificateIn(key); crt != nil {
		return crt, key, nil
	}
	crt, err = os.ReadFile(crtPath)
	return crt, key, err
}

// certificateIn returns the certificate in a key file, nil if there is none.
func certificateIn(b []byte) []byte {
	for {
		block, rest := pem.Decode(b)
		if block == nil {
			return nil
		}
		if block.Type == "CERTIFICATE" {
			return pem.EncodeToMemory(block)
		}
		b = rest
	}
}

// HostFrom is Host for files read by another process.
func HostFrom(f Files) (*tls.Config, error) {
	pool, err := authority(f.Authority, "the cluster's authority")
	if err != nil {
		return nil, err
	}
	cert, err := tls.X509KeyPair(f.Certificate, f.Key)
	if err != nil {
		return nil, fmt.Errorf("cannot use the certificate of this host: %w", err)
	}
	return client(cert, pool), nil
}

func client(cert tls.Certificate, pool *x509.CertPool) *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{cert},
		// The standard check is by host name; VerifyConnection does the other checks, and that of the role.
		InsecureSkipVerify: true,
		VerifyConnection: func(cs tls.ConnectionState) error {
			_, err := verify(cs.PeerCertificates, pool, x509.ExtKeyUsageServerAuth, RoleController)
			return err
		},
	}
}

// Server returns the configuration with which a controller listens. Hosts and controllers of this cluster identify themselves by
// certificate; a certificate of another cluster is rejected. A client without a certificate may connect, in order to join: the
// server must call PeerOf, which identifies the client or reports that it is unknown. The server also sends its authority's
// certificate, for clients that know only its fingerprint.
func Server(dir string) (*tls.Config, error) {
	cert, pool, err := load(dir, RoleController)
	if err != nil {
		return nil, err
	}
	caPath, _, _ := Paths(dir, RoleController)
	all, err := Authorities(caPath)
	if err != nil {
		return nil, err
	}
	for _, a := range all {
		if cert.Leaf.CheckSignatureFrom(a) == nil {
			cert.Certificate = append(cert.Certificate, a.Raw)
			break
		}
	}
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		NextProtos:             []string{"h2"},
		Certificates:           []tls.Certificate{cert},
		ClientCAs:              pool,
		ClientAuth:             tls.VerifyClientCertIfGiven,
		SessionTicketsDisabled: true, // a resumed session would carry the previous certificate
		VerifyConnection: func(cs tls.ConnectionState) error { // the chain has been verified against ClientCAs
			if len(cs.PeerCertificates) == 0 {
				return nil
			}
			_, err := inRole(CertificateOf(cs), RoleNode, RoleLogin, RoleController)
			return err
		},
	}, nil
}

// ErrStranger is returned by PeerOf if no certificate was shown.
var ErrStranger = fmt.Errorf("no certificate was shown: %w", ErrPeer)

// CertificateOf returns the verified certificate of the peer, or nil.
func CertificateOf(cs tls.ConnectionState) *x509.Certificate {
	if len(cs.VerifiedChains) == 0 || len(cs.VerifiedChains[0]) == 0 {
		return nil
	}
	return cs.VerifiedChains[0][0]
}

// Serial formats the serial number of a certificate.
func Serial(c *x509.Certificate) string { return c.SerialNumber.Text(16) }

// PeerOf returns the peer of a connection that Server accepted.
func PeerOf(cs tls.ConnectionState) (Identity, error) {
	c := CertificateOf(cs)
	if c == nil {
		return Identity{}, fmt.Errorf("cannot tell who is connected: %w", ErrStranger)
	}
	return identity(c)
}

// verify checks a chain's authority, key usage and role.
func verify(certs []*x509.Certificate, pool *x509.CertPool, use x509.ExtKeyUsage, roles ...string) (Identity, error) {
	if len(certs) == 0 {
		return Identity{}, fmt.Errorf("cannot accept the connection: no certificate: %w", ErrPeer)
	}
	_, err := certs[0].Verify(x509.VerifyOptions{Roots: pool, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{use}})
	if err != nil {
		return Identity{}, fmt.Errorf("cannot accept %s: %w: is it of this cluster, and are the clocks right? %w", subject(certs[0]), err,
			ErrPeer)
	}
	return inRole(certs[0], roles...)
}

// inRole returns the identity in a verified certificate (nil: none), if it has one of the roles.
func inRole(c *x509.Certificate, roles ...string) (Identity, error) {
	if c == nil {
		return Identity{}, fmt.Errorf("cannot accept the connection: no certificate that was verified: %w", ErrPeer)
	}
	id, err := identity(c)
	if err != nil {
		return Identity{}, err
	}
	if !slices.Contains(roles, id.Role) {
		return Identity{}, fmt.Errorf("cannot accept %s: its role should be one of %q: %w", subject(c), roles, ErrPeer)
	}
	return id, nil
}

func identity(c *x509.Certificate) (Identity, error) {
	if len(c.Subject.OrganizationalUnit) != 1 || c.Subject.CommonName == "" {
		return Identity{}, fmt.Errorf("cannot accept %s: it must have one role and a name: %w", subject(c), ErrPeer)
	}
	return Identity{Role: c.Subject.OrganizationalUnit[0], Name: c.Subject.CommonName}, nil
}

func subject(c *x509.Certificate) string {
	return fmt.Sprintf("the certificate of %q", c.Subject.String())
}

// load reads the files of a role and checks that they belong together.
func load(dir, role string) (tls.Certificate, *x509.CertPool, error) {
	none := tls.Certificate{}
	caPath, crtPath, keyPath := Paths(dir, role)
	pool, err := Authority(caPath)
	if err != nil {
		return none, nil, err
	}
	if info, err := os.Stat(keyPath); err == nil && info.Mode().Perm()&0o077 != 0 {
		return none, nil, fmt.Errorf("cannot use %s: it is readable by others (mode %#o); run chmod 600", keyPath, info.Mode().Perm())
	}
	crtPEM, keyPEM, err := readPair(crtPath, keyPath)
	var cert tls.Certificate
	if err == nil {
		cert, err = tls.X509KeyPair(crtPEM, keyPEM)
	}
	if err != nil {
		return none, nil, fmt.Errorf("cannot load the certificate %s and its key: %w", crtPath, err)
	}
	if cert.Leaf == nil {
		if cert.Leaf, err = x509.ParseCertificate(cert.Certificate[0]); err != nil {
			return none, nil, fmt.Errorf("cannot read the certificate %s: %w", crtPath, err)
		}
	}
	if _, err := verify([]*x509.Certificate{cert.Leaf}, pool, x509.ExtKeyUsageAny, role); err != nil {
		return none, nil, fmt.Errorf("cannot use %s with %s: %w", crtPath, caPath, err)
	}
	return cert, pool, nil
}

// Authority reads the certificates of the cluster's authorities.
func Authority(path string) (*x509.CertPool, error) {
	all, err := Authorities(path)
	return poolOf(all), err
}

// Authorities reads the certificates of the cluster's authorities. There are several while one is being replaced.
func Authorities(path string) ([]*x509.Certificate, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil,
			fmt.Errorf(
				"cannot read the cluster's authority: %w; join the cluster (`sluice token create` on the controller), or have "+
					"`sluice-ctld issue --node NAME --out DIR` there write this folder", err)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the cluster's authority: %w", err)
	}
	return ParseAuthorities(b, path)
}

// maxAuthorities bounds the number of trusted authorities.
const maxAuthorities = 8

// ParseAuthorities is Authorities for the content of a file; name is for messages.
func ParseAuthorities(b []byte, name string) (all []*x509.Certificate, err error) {
	for {
		block, rest := pem.Decode(b)
		if block == nil {
			break
		}
		b = rest
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("cannot read the cluster's authority %s: %w", name, err)
		}
		if !c.IsCA {
			return nil, fmt.Errorf("cannot use %s: it is not the certificate of an authority", name)
		}
		if all = append(all, c); len(all) > maxAuthorities {
			return nil, fmt.Errorf("cannot use %s: it has more than %d certificates", name, maxAuthorities)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("cannot read the cluster's authority: %s is not PEM", name)
	}
	return all, nil
}

func poolOf(all []*x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, c := range all {
		pool.AddCert(c)
	}
	return pool
}

func authority(b []byte, name string) (*x509.CertPool, error) {
	all, err := ParseAuthorities(b, name)
	return poolOf(all), err
}

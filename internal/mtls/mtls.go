// Package mtls authenticates controller and hosts to each other: TLS 1.3 with certificates of the cluster's own
// authority on both sides, and a role and a name in each certificate.
//
// A certificate's organizational unit is its role, its common name the name of the node or controller. Peers are checked
// by authority and role, not by host name: addresses of nodes change, and this authority gives no certificate with the
// role "ctld" to anything but a controller. A node's key therefore speaks for that node alone: it cannot pose as the
// controller or as another node.
//
// A directory holds ca.crt, and ROLE.crt with ROLE.key: node.crt and node.key on a node, login.crt and login.key on a
// login host, ctld.crt and ctld.key on a controller. ca.crt may hold several authorities, all of which are trusted; that
// is how one is replaced. ROLE.key may hold the certificate as well, and then that one counts: two files cannot be
// replaced at once, one can, by a rename.
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
	RoleLogin      = "login" // a host that only speaks for the commands of its users
	// RoleMonitor is a program that may read metrics (package metrics), and nothing else: no other port lets it in.
	RoleMonitor = "monitor"
)

// RelayServerName is the name by which the relay of a host asks for the controller's RelayAPI (TLS server name indication). It says what
// the connection is for, and nothing about who has it.
const RelayServerName = "relay.sluice.invalid"

// ServerName is in the certificate of each host of a role, beside the names that it may have: a program that reads metrics asks for it, and
// knows that it speaks to a node or the controller of the cluster, under whichever address. Prometheus can ask for one name alone in all
// targets of a job, and a controller keeps its certificate when it moves.
func ServerName(role string) string { return role + ".sluice.invalid" }

// ErrPeer is in every refusal of the other side.
var ErrPeer = errors.New("unexpected peer")

// Identity is who a verified certificate says its holder is.
type Identity struct {
	Role string
	Name string
}

// Paths returns the files of a role in a folder.
func Paths(dir, role string) (caCrt, crt, key string) {
	return filepath.Join(dir, "ca.crt"), filepath.Join(dir, role+".crt"), filepath.Join(dir, role+".key")
}

// Host returns the configuration with which the daemon of a host connects to a controller: RoleNode or RoleLogin.
func Host(dir, role string) (*tls.Config, error) {
	cert, pool, err := load(dir, role)
	if err != nil {
		return nil, err
	}
	return client(cert, pool), nil
}

// Files are the contents of a role's files.
type Files struct{ Authority, Certificate, Key []byte }

// HostFiles reads the files of a host, and makes sure that they belong together, for a process that cannot read them itself: HostFrom.
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

// NameIn is the name in the certificate of a role in a folder.
func NameIn(dir, role string) (string, error) {
	f, err := HostFiles(dir, role)
	if err != nil {
		return "", err
	}
	block, _ := pem.Decode(f.Certificate) // HostFiles has read it
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

// certificateIn is the certificate that a file of keys holds as well, nil when it does not.
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

// HostFrom is Host for files that somebody else has read.
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
		// The standard check is by host name; VerifyConnection does the rest of it, and the role.
		InsecureSkipVerify: true,
		VerifyConnection: func(cs tls.ConnectionState) error {
			_, err := verify(cs.PeerCertificates, pool, x509.ExtKeyUsageServerAuth, RoleController)
			return err
		},
	}
}

// Server returns the configuration with which a controller listens. Hosts and controllers of this cluster are known by their certificates,
// and one that is not of this cluster is refused. Who has none at all may connect, to join: PeerOf says who did, or that it is nobody, and
// the server has to ask it. It shows its authority's certificate with its own, for those who know only the fingerprint of it.
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
		SessionTicketsDisabled: true, // a resumed session would show the previous certificate
		VerifyConnection: func(cs tls.ConnectionState) error { // the chain has been verified, for ClientCAs
			if len(cs.PeerCertificates) == 0 {
				return nil
			}
			_, err := inRole(CertificateOf(cs), RoleNode, RoleLogin, RoleController)
			return err
		},
	}, nil
}

// ErrStranger is why PeerOf names nobody: no certificate was shown.
var ErrStranger = fmt.Errorf("no certificate was shown: %w", ErrPeer)

// CertificateOf returns the certificate that the other end of a connection has shown and that was verified; nil: none.
func CertificateOf(cs tls.ConnectionState) *x509.Certificate {
	if len(cs.VerifiedChains) == 0 || len(cs.VerifiedChains[0]) == 0 {
		return nil
	}
	return cs.VerifiedChains[0][0]
}

// Serial is how the number of a certificate is written.
func Serial(c *x509.Certificate) string { return c.SerialNumber.Text(16) }

// PeerOf returns who is at the other end of a connection that Server accepted.
func PeerOf(cs tls.ConnectionState) (Identity, error) {
	c := CertificateOf(cs)
	if c == nil {
		return Identity{}, fmt.Errorf("cannot tell who is connected: %w", ErrStranger)
	}
	return identity(c)
}

// verify checks a chain against the authority, its use and its role.
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

// inRole says whose a certificate is that has been verified (nil: none has), if it is of one of the roles.
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

// load reads the files of a role and makes sure that they belong together.
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

// Authorities reads the certificates of the cluster's authorities. More than one are there while one is replaced by another.
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

// maxAuthorities bounds how many are believed at a time.
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

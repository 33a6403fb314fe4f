// Package mtls is how the controller and the node daemons know each other: TLS 1.3, certificates of the cluster's own authority on
// both sides, and a role and a name in each certificate.
//
// A certificate's organizational unit is its role, its common name the name of the node or controller. Who connects is checked by
// authority and role, not by host name: nodes are reached by addresses that change, and no certificate of this authority that
// says "ctld" is given to anything but a controller. A node's key therefore speaks for that node alone: it cannot pose as the
// controller, nor as another node.
//
// A folder holds ca.crt, and ROLE.crt with ROLE.key: node.crt and node.key on a node, login.crt and login.key on a login host,
// ctld.crt and ctld.key on a controller.
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
)

// The roles.
const (
	RoleController = "ctld"
	RoleNode       = "node"  // a compute host
	RoleLogin      = "login" // a host that only speaks for the commands of its users
)

// RelayServerName is the name by which the relay of a host asks for the controller's RelayAPI (TLS server name indication). It says what
// the connection is for, and nothing about who has it.
const RelayServerName = "relay.sluice.invalid"

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

// Node returns the configuration with which a node daemon connects to a controller.
func Node(dir string) (*tls.Config, error) { return Host(dir, RoleNode) }

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
	for _, part := range []struct {
		to   *[]byte
		path string
	}{{&f.Authority, ca}, {&f.Certificate, crt}, {&f.Key, key}} {
		if *part.to, err = os.ReadFile(part.path); err != nil {
			return Files{}, err
		}
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

// ControllerClient returns the configuration with which a controller connects to another one.
func ControllerClient(dir string) (*tls.Config, error) {
	cert, pool, err := load(dir, RoleController)
	if err != nil {
		return nil, err
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

// Server returns the configuration with which a controller listens: only hosts and controllers of this cluster may connect. PeerOf says
// which one did.
func Server(dir string) (*tls.Config, error) {
	cert, pool, err := load(dir, RoleController)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{cert},
		ClientCAs:    pool,
		ClientAuth:   tls.RequireAndVerifyClientCert,
		VerifyConnection: func(cs tls.ConnectionState) error {
			_, err := verify(cs.PeerCertificates, pool, x509.ExtKeyUsageClientAuth, RoleNode, RoleLogin, RoleController)
			return err
		},
	}, nil
}

// PeerOf returns who is at the other end of a connection that Server accepted.
func PeerOf(cs tls.ConnectionState) (Identity, error) {
	if len(cs.VerifiedChains) == 0 || len(cs.VerifiedChains[0]) == 0 {
		return Identity{}, fmt.Errorf("cannot tell who is connected: no certificate was verified: %w", ErrPeer)
	}
	return identity(cs.VerifiedChains[0][0])
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
	id, err := identity(certs[0])
	if err != nil {
		return Identity{}, err
	}
	for _, r := range roles {
		if id.Role == r {
			return id, nil
		}
	}
	return Identity{}, fmt.Errorf("cannot accept %s: its role should be one of %q: %w", subject(certs[0]), roles, ErrPeer)
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
	cert, err := tls.LoadX509KeyPair(crtPath, keyPath)
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

// Authority reads the certificate of the cluster's authority.
func Authority(path string) (*x509.CertPool, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil,
			fmt.Errorf(
				"cannot read the cluster's authority: %w; `sluice-ctld issue --node NAME --out DIR` on the controller writes a "+
					"node's folder", err)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the cluster's authority: %w", err)
	}
	return authority(b, path)
}

func authority(b []byte, path string) (*x509.CertPool, error) {
	block, _ := pem.Decode(b)
	if block == nil {
		return nil, fmt.Errorf("cannot read the cluster's authority: %s is not PEM", path)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("cannot read the cluster's authority %s: %w", path, err)
	}
	if !c.IsCA {
		return nil, fmt.Errorf("cannot use %s: it is not the certificate of an authority", path)
	}
	pool := x509.NewCertPool()
	pool.AddCert(c)
	return pool, nil
}

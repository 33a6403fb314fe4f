// Package ca is the cluster's own certificate authority, so that a cluster has mutual TLS from its first start with nothing to install. The
// controller makes the authority, and signs a certificate for itself and for each host. Package mtls uses them.
//
// The authority's key is needed to sign, not to run: it may be taken off the machine, and Ensure works without it.
//
// Revocation is by name and serial number and never by a clock: NotBefore is 1970 in all certificates, because clocks may be behind. The
// time of issue is in an extension (private key usage period), from which a host computes when to renew.
package ca

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/sluice-hpc/sluice/internal/mtls"
)

const (
	lifetime = 10 * 365 * 24 * time.Hour
	renew    = 90 * 24 * time.Hour
	maxName  = 255
)

// always is the start of every certificate's validity. A clock that is behind, even one that starts in 1970 because the battery is empty,
// must not separate a node from its controller.
var always = time.Unix(0, 0)

func caCrt(dir string) string { return filepath.Join(dir, "ca.crt") }
func caKey(dir string) string { return filepath.Join(dir, "ca.key") }

// Files returns the paths of the authority's certificates and of its key.
func Files(dir string) (certificates, key string) { return caCrt(dir), caKey(dir) }

// Check reports whether there is a usable authority in dir; the error is fs.ErrNotExist if there is none.
func Check(dir string) error {
	if _, err := os.Stat(caCrt(dir)); err != nil {
		return fmt.Errorf("cannot read the cluster's authority: %w", err)
	}
	_, err := mtls.Authority(caCrt(dir))
	return err
}

// Ensure makes an authority in dir (ca.key, mode 0600, and ca.crt) if there is none: ECDSA P-256, valid for 10 years.
func Ensure(dir string) error {
	err := Check(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("cannot create the cluster's authority: %w", err)
	}
	key, err := readKey(dir)
	if errors.Is(err, fs.ErrNotExist) {
		key, err = newKey(caKey(dir))
	}
	if err != nil {
		return err
	}
	der, err := selfSign(key, nil)
	if err != nil {
		return err
	}
	return mtls.Write(caCrt(dir), 0o644, mtls.EncodeCertificate(der))
}

func newKey(path string) (*ecdsa.PrivateKey, error) {
	key, pemBytes, err := mtls.MakeKey()
	if err != nil {
		return nil, err
	}
	return key, mtls.Write(path, 0o600, pemBytes)
}

// selfSign makes the certificate of an authority, as DER. Without a subject it is a new one.
func selfSign(key *ecdsa.PrivateKey, subject *pkix.Name) ([]byte, error) {
	t, err := authorityTemplate(subject)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("cannot create the cluster's authority: %w", err)
	}
	return der, nil
}

func authorityTemplate(subject *pkix.Name) (*x509.Certificate, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	if subject == nil { // the number distinguishes two clusters' authorities, for people and for chain building
		subject = &pkix.Name{CommonName: "Sluice cluster authority " + hex.EncodeToString(serial.Bytes()[:4])}
	}
	return &x509.Certificate{
		SerialNumber: serial, Subject: *subject, NotBefore: always, NotAfter: time.Now().Add(lifetime),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}, nil
}

// Issue signs a new certificate for name in role, reachable as hosts (names and addresses; informative, see package mtls).
func Issue(dir, name, role string, hosts []string) (certPEM, keyPEM []byte, err error) {
	if err := checkSubject(name, role); err != nil {
		return nil, nil, err
	}
	signer, authority, err := signing(dir)
	if err != nil {
		return nil, nil, err
	}
	key, keyPEM, err := mtls.MakeKey()
	if err != nil {
		return nil, nil, err
	}
	now := time.Now()
	t, err := template(name, role, hosts, now, now.Add(lifetime), authority.NotAfter)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, t, authority, key.Public(), signer)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot sign a certificate for %s %q: %w", role, name, err)
	}
	return mtls.EncodeCertificate(der), keyPEM, nil
}

// template returns the template of a certificate that is issued now and ends at end, or with its authority.
func template(name, role string, hosts []string, now, end, until time.Time) (*x509.Certificate, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	issued, err := mtls.IssuedAt(now)
	if err != nil {
		return nil, err
	}
	if end.After(until) {
		end = until
	}
	t := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name, OrganizationalUnit: []string{role}},
		NotBefore:    always, NotAfter: end,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
		ExtraExtensions: []pkix.Extension{issued}, DNSNames: []string{mtls.ServerName(role)},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else if h != "" {
			t.DNSNames = append(t.DNSNames, h)
		}
	}
	return t, nil
}

func checkSubject(name, role string) error {
	if roles := []string{mtls.RoleController, mtls.RoleNode, mtls.RoleLogin, mtls.RoleMonitor}; !slices.Contains(roles, role) {
		return fmt.Errorf("cannot sign a certificate for %q: the role is %q, it must be one of %q", name, role, roles)
	}
	odd := func(r rune) bool { return !unicode.IsGraphic(r) || r == ' ' || r == unicode.ReplacementChar }
	if name == "" || len(name) > maxName || strings.ContainsFunc(name, odd) {
		return fmt.Errorf("cannot sign a certificate: %q is not a name: 1 to %d printable characters without spaces", name, maxName)
	}
	return nil
}

// Provide makes sure that the directory has the files that name needs in role (ca.crt, ROLE.crt, ROLE.key), and keeps existing ones that
// are from this authority, for this name, and not about to end. It reports whether it signed a certificate.
func Provide(dir, folder, name, role string, hosts []string) (signed bool, err error) {
	authority, err := os.ReadFile(caCrt(dir))
	if err != nil {
		return false, fmt.Errorf("cannot read the cluster's authority: %w", err)
	}
	ca, crt, key := mtls.Paths(folder, role)
	if had, err := os.ReadFile(ca); err == nil && string(had) == string(authority) && current(crt, name) && usable(folder, role) {
		return false, nil
	}
	certPEM, keyPEM, err := Issue(dir, name, role, hosts)
	if err != nil {
		return false, err
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return false, fmt.Errorf("cannot store the certificate of %s %q: %w", role, name, err)
	}
	if folder != dir {
		err = mtls.Write(ca, 0o644, authority)
	}
	// The key before the certificate: a crash in between leaves a pair that does not match, which the next call replaces.
	return true, errors.Join(err, mtls.Write(key, 0o600, keyPEM), mtls.Write(crt, 0o644, certPEM))
}

func current(crt, name string) bool {
	c, err := readCert(crt)
	return err == nil && c.Subject.CommonName == name && time.Until(c.NotAfter) > renew && time.Now().Before(mtls.RenewAt(c))
}

func usable(folder, role string) bool {
	var err error
	if role == mtls.RoleController {
		_, err = mtls.Server(folder)
	} else {
		_, err = mtls.Host(folder, role)
	}
	return err == nil
}

// ServerTLS returns the TLS configuration of a controller's node port.
func ServerTLS(dir string) (*tls.Config, error) { return mtls.Server(dir) }

func readKey(dir string) (*ecdsa.PrivateKey, error) {
	path := caKey(dir)
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot sign: cannot use the key of the cluster's authority: %w", err)
	}
	key, err := mtls.ReadKey(b)
	if err != nil {
		return nil, fmt.Errorf("cannot sign: %s: %w", path, err)
	}
	return key, nil
}

func readCert(path string) (*x509.Certificate, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read a certificate: %w", err)
	}
	block, _ := pem.Decode(b)
	if block == nil {
		return nil, fmt.Errorf("cannot read a certificate: %s is not PEM", path)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("cannot read the certificate %s: %w", path, err)
	}
	return c, nil
}

func newSerial() (*big.Int, error) {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 126))
	if err != nil {
		return nil, fmt.Errorf("cannot create a serial number: %w", err)
	}
	return n.SetBit(n, 126, 1), nil
}

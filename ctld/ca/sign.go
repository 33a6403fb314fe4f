package ca

import (
	"bytes"
	"cmp"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/sluice-hpc/sluice/internal/mtls"
)

// HostLife is the lifetime of the certificate of a host that has joined. It is renewed after two thirds, with ten days left: a controller
// may be away for a week, or a host be switched off over a holiday, without manual work. A stolen certificate with its key is useless after
// a month even if nobody notices, and a failing renewal shows in time.
const HostLife = 30 * 24 * time.Hour

// Signer signs certificates for keys made by others.
type Signer struct {
	Dir  string           // of the authority
	Life time.Duration    // HostLife
	Now  func() time.Time // time.Now
}

// Sign certifies a key, and returns the certificate.
func (s *Signer) Sign(id mtls.Identity, key *ecdsa.PublicKey) (*x509.Certificate, error) {
	if err := checkSubject(id.Name, id.Role); err != nil {
		return nil, err
	}
	signer, authority, err := signing(s.Dir)
	if err != nil {
		return nil, err
	}
	now := s.Now()
	t, err := template(id.Name, id.Role, nil, now, now.Add(s.Life), authority.NotAfter)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, t, authority, key, signer)
	if err != nil {
		return nil, fmt.Errorf("cannot sign a certificate for %s %q: %w", id.Role, id.Name, err)
	}
	return x509.ParseCertificate(der)
}

// Bundle returns the certificates of all authorities that hosts have to trust, PEM.
func (s *Signer) Bundle() ([]byte, error) {
	b, err := os.ReadFile(caCrt(s.Dir))
	if err != nil {
		return nil, fmt.Errorf("cannot read the cluster's authority: %w", err)
	}
	return b, nil
}

// signing returns the signing authority: the key, and its certificate.
func signing(dir string) (*ecdsa.PrivateKey, *x509.Certificate, error) {
	key, err := readKey(dir)
	if err != nil {
		return nil, nil, err
	}
	all, err := mtls.Authorities(caCrt(dir))
	if err != nil {
		return nil, nil, err
	}
	for _, c := range all {
		if pub, ok := c.PublicKey.(*ecdsa.PublicKey); ok && pub.Equal(key.Public()) {
			return key, c, nil
		}
	}
	return nil, nil, fmt.Errorf("cannot sign: %s is not the key of any certificate in %s", caKey(dir), caCrt(dir))
}

// # Replacing the authority
//
// During a replacement ca.crt has two authorities. The new one signs from the start; the controller keeps presenting a certificate of the
// old one, which all hosts know, until the old one is dropped. A host that renews gets a certificate of the new one and learns of both: it
// trusts the new one because the old one has signed it. A host that has not renewed when the old one is dropped has to join again.

// Replace begins the replacement: it makes a new authority that signs from now on, and keeps the old one beside it.
func Replace(dir string) (*x509.Certificate, error) {
	oldKey, old, err := signing(dir)
	if err != nil {
		return nil, err
	}
	all, err := mtls.Authorities(caCrt(dir))
	if err != nil {
		return nil, err
	}
	if len(all) > 1 {
		return nil, errors.New("cannot replace the cluster's authority: another replacement is not finished (sluice-ctld authority " +
			"--drop-old)")
	}
	key, keyPEM, err := mtls.MakeKey()
	if err != nil {
		return nil, err
	}
	made, err := signedBy(key, old, oldKey)
	if err != nil {
		return nil, err
	}
	// Certificates first: a crash in between leaves two authorities, the old of which signs, and Drop removes the new one.
	bundle := append(mtls.EncodeCertificate(made.Raw), mtls.EncodeCertificate(old.Raw)...)
	return made, errors.Join(mtls.Write(caCrt(dir), 0o644, bundle), mtls.Write(caKey(dir), 0o600, keyPEM))
}

// Drop ends the replacement: only certificates of the signing authority are still accepted. The controller gets a new certificate when it
// starts, or reads its configuration again.
func Drop(dir string) (dropped int, err error) {
	key, now, err := signing(dir)
	if err != nil {
		return 0, err
	}
	all, err := mtls.Authorities(caCrt(dir))
	if err != nil || len(all) == 1 {
		return 0, err
	}
	made, err := selfSigned(key, &now.Subject) // it stands by itself from now on
	if err != nil {
		return 0, err
	}
	return len(all) - 1, mtls.Write(caCrt(dir), 0o644, mtls.EncodeCertificate(made.Raw))
}

// Extend prolongs the signing authority by another ten years, with the same key: the certificates that it has signed stay valid, and hosts
// learn of it when they renew.
func Extend(dir string) (*x509.Certificate, error) {
	key, old, err := signing(dir)
	if err != nil {
		return nil, err
	}
	all, err := mtls.Authorities(caCrt(dir))
	if err != nil {
		return nil, err
	}
	made, err := selfSigned(key, &old.Subject)
	if err != nil {
		return nil, err
	}
	var bundle []byte
	for _, c := range all {
		if bytes.Equal(c.Raw, old.Raw) {
			c = made
		}
		bundle = append(bundle, mtls.EncodeCertificate(c.Raw)...)
	}
	return made, mtls.Write(caCrt(dir), 0o644, bundle)
}

// CheckFiles refuses an authority whose key, or the directory of it, others can read or change.
func CheckFiles(dir string) error {
	for _, f := range []struct {
		path string
		bad  os.FileMode
	}{{dir, 0o022}, {caKey(dir), 0o077}, {caCrt(dir), 0o022}} {
		fi, err := os.Stat(f.path)
		if errors.Is(err, os.ErrNotExist) { // the key may be kept elsewhere
			continue
		}
		if err != nil {
			return fmt.Errorf("cannot check who may read the cluster's authority: %w", err)
		}
		if fi.Mode().Perm()&f.bad != 0 {
			return fmt.Errorf("cannot use the cluster's authority: %s has mode %#o: whoever can read its key can pose as any "+
				"host; run chmod go-rwx %s, and replace the authority if somebody may have read the key (sluice-ctld authority --help)",
				f.path, fi.Mode().Perm(), f.path)
		}
		if err := owned(f.path, fi); err != nil {
			return err
		}
	}
	return nil
}

// signedBy makes the certificate of a new authority, signed by another one.
func signedBy(key *ecdsa.PrivateKey, by *x509.Certificate, byKey *ecdsa.PrivateKey) (*x509.Certificate, error) {
	t, err := authorityTemplate(nil)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, t, by, key.Public(), byKey)
	if err != nil {
		return nil, fmt.Errorf("cannot create the cluster's next authority: %w", err)
	}
	return x509.ParseCertificate(der)
}

// selfSigned makes the certificate of an authority; without a subject, of a new one.
func selfSigned(key *ecdsa.PrivateKey, subject *pkix.Name) (*x509.Certificate, error) {
	der, err := selfSign(key, subject)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// owned refuses a file of another user, who could change it.
func owned(path string, fi os.FileInfo) error {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok && st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("cannot use the cluster's authority: %s belongs to uid %d, and the controller runs as uid %d", path, st.Uid,
			os.Geteuid())
	}
	return nil
}

// Authorities returns the accepted authorities, the signing one first.
func Authorities(dir string) ([]*x509.Certificate, error) {
	all, err := mtls.Authorities(caCrt(dir))
	if err != nil {
		return nil, err
	}
	if key, err := readKey(dir); err == nil {
		slices.SortStableFunc(all, func(a, b *x509.Certificate) int {
			return cmp.Compare(of(key, b), of(key, a))
		})
	}
	return all, nil
}

// of returns 1 for the certificate of a key, else 0.
func of(key *ecdsa.PrivateKey, c *x509.Certificate) int {
	if pub, ok := c.PublicKey.(*ecdsa.PublicKey); ok && pub.Equal(key.Public()) {
		return 1
	}
	return 0
}

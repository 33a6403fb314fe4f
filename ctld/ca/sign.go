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

// HostLife is how long the certificate of a host that has joined is good for. Ten days are left when it is renewed, after two thirds: a
// controller may be away for a week, or a host be switched off over a holiday, and nobody has to do anything. A certificate that somebody
// has stolen together with its key is worth nothing after a month even if nobody notices, and a fault of renewal shows
// while it can be mended.
const HostLife = 30 * 24 * time.Hour

// Signer signs certificates for keys that others have made.
type Signer struct {
	Dir  string           // of the authority
	Life time.Duration    // HostLife
	Now  func() time.Time // time.Now
}

// Sign certifies a key. It returns the certificate as DER, and what it says.
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

// Bundle is what hosts believe: the certificates of all authorities, PEM.
func (s *Signer) Bundle() ([]byte, error) {
	b, err := os.ReadFile(caCrt(s.Dir))
	if err != nil {
		return nil, fmt.Errorf("cannot read the cluster's authority: %w", err)
	}
	return b, nil
}

// signing is the authority that signs: the key, and the certificate that belongs to it.
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
// While one is replaced there are two in ca.crt. The new one signs from the first moment on; the controller goes on showing a certificate
// of the old one, which all hosts know, until the old one is dropped. A host that renews gets a certificate of the new one and learns to
// know both: it believes the new one because the old one has signed it. Who has not renewed when the old
// one is dropped has to join again.

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
	// The certificates first: a crash in between leaves two authorities of which the old one signs, and Drop takes the new one away.
	bundle := append(mtls.EncodeCertificate(made.Raw), mtls.EncodeCertificate(old.Raw)...)
	return made, errors.Join(mtls.Write(caCrt(dir), 0o644, bundle), mtls.Write(caKey(dir), 0o600, keyPEM))
}

// Drop ends the replacement: certificates of any authority but the one that signs are not accepted any more. The controller gets a new
// one of its own when it starts, or reads its configuration again.
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

// Extend gives the authority that signs another ten years, with the key that it has: what it has signed stays good, and hosts learn of it
// when they renew.
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

// CheckFiles refuses an authority whose key, or the folder of it, others can read or change.
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

// signedBy makes the certificate of a new authority that another one vouches for.
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

// owned refuses what belongs to somebody else: whoever owns a file can change it.
func owned(path string, fi os.FileInfo) error {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok && st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("cannot use the cluster's authority: %s belongs to uid %d, and the controller runs as uid %d", path, st.Uid,
			os.Geteuid())
	}
	return nil
}

// Authorities are those whose certificates are accepted, the one that signs first.
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

// of is 1 for the certificate of a key, else 0.
func of(key *ecdsa.PrivateKey, c *x509.Certificate) int {
	if pub, ok := c.PublicKey.(*ecdsa.PublicKey); ok && pub.Equal(key.Public()) {
		return 1
	}
	return 0
}

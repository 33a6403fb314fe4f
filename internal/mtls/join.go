package mtls

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"time"
)

// Fingerprint identifies an authority by its key, so that it does not change when its certificate is renewed.
func Fingerprint(c *x509.Certificate) [sha256.Size]byte {
	return sha256.Sum256(c.RawSubjectPublicKeyInfo)
}

// AuthorityID is the short id of an authority for display.
func AuthorityID(c *x509.Certificate) string { return shortID(c.SubjectKeyId) }

// SignerOf is the AuthorityID of a certificate's signer.
func SignerOf(c *x509.Certificate) string { return shortID(c.AuthorityKeyId) }

func shortID(b []byte) string { return hex.EncodeToString(b[:min(len(b), 8)]) }

// EncodeCertificate encodes a certificate as PEM.
func EncodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// Joining returns the configuration with which a host without a certificate connects to its controller: it knows only the
// fingerprint of the authority.
func Joining(fingerprint [sha256.Size]byte) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true,
		VerifyConnection: func(cs tls.ConnectionState) error {
			for _, c := range cs.PeerCertificates[min(1, len(cs.PeerCertificates)):] {
				if Fingerprint(c) == fingerprint && c.IsCA {
					_, err := verify(cs.PeerCertificates[:1], poolOf([]*x509.Certificate{c}), x509.ExtKeyUsageServerAuth, RoleController)
					return err
				}
			}
			return fmt.Errorf("the token is of another cluster, or predates the CA rotation; the controller no longer uses that CA: "+
				"%w", ErrPeer)
		},
	}
}

// MakeKey creates an ECDSA P-256 key.
func MakeKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot make a key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot make a key: %w", err)
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// ReadKey reads a key encoded by MakeKey, or any other ECDSA P-256 key.
func ReadKey(b []byte) (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(b)
	if block == nil {
		return nil, errors.New("it is not PEM")
	}
	k, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	key, ok := k.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, errors.New("it is no ECDSA key on P-256")
	}
	return key, nil
}

// Request creates a certificate request (PKCS #10, DER). It proves possession of the key and names the requested identity.
func Request(key *ecdsa.PrivateKey, id Identity) ([]byte, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: id.Name, OrganizationalUnit: []string{id.Role}}}, key)
	if err != nil {
		return nil, fmt.Errorf("cannot make a certificate request: %w", err)
	}
	return der, nil
}

// maxRequest bounds a certificate request; ours have about 250 bytes.
const maxRequest = 4096

// ReadRequest checks a certificate request: it must be for this identity, with a P-256 key that the requester possesses. It returns
// the key.
func ReadRequest(der []byte, id Identity) (*ecdsa.PublicKey, error) {
	if len(der) > maxRequest {
		return nil, fmt.Errorf("cannot take a certificate request of %d bytes, the limit is %d", len(der), maxRequest)
	}
	r, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return nil, fmt.Errorf("cannot read the certificate request: %w", err)
	}
	key, ok := r.PublicKey.(*ecdsa.PublicKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, errors.New("cannot take the certificate request: its key must be ECDSA on P-256")
	}
	if err := r.CheckSignature(); err != nil {
		return nil, fmt.Errorf("cannot take the certificate request: whoever asks does not have the key: %w", err)
	}
	if u := r.Subject.OrganizationalUnit; len(u) != 1 || u[0] != id.Role || r.Subject.CommonName != id.Name {
		return nil, fmt.Errorf("cannot take the certificate request: it is for %q, and this is %s %q", r.Subject.String(), id.Role, id.Name)
	}
	return key, nil
}

// The private key usage period (RFC 3280, 4.2.1.4). Our certificates are valid from 1970, because clocks may be behind, so this
// extension records when one was issued, which determines when the next one is due.
var usagePeriodID = asn1.ObjectIdentifier{2, 5, 29, 16}

type usagePeriod struct {
	From time.Time `asn1:"optional,tag:0,generalized"`
}

// IssuedAt returns the extension that records when a certificate was issued.
func IssuedAt(t time.Time) (pkix.Extension, error) {
	b, err := asn1.Marshal(usagePeriod{From: t.UTC().Truncate(time.Second)})
	if err != nil {
		return pkix.Extension{}, fmt.Errorf("cannot say when a certificate is issued: %w", err)
	}
	return pkix.Extension{Id: usagePeriodID, Value: b}, nil
}

// Issued returns when a certificate was issued; false if it has no record of it.
func Issued(c *x509.Certificate) (time.Time, bool) {
	for _, e := range c.Extensions {
		if !e.Id.Equal(usagePeriodID) {
			continue
		}
		var p usagePeriod
		if rest, err := asn1.Unmarshal(e.Value, &p); err != nil || len(rest) > 0 || p.From.IsZero() {
			return time.Time{}, false
		}
		return p.From, true
	}
	return time.Time{}, false
}

// lastDays is how long before its end a certificate without a time of issue is renewed.
const lastDays = 90 * 24 * time.Hour

// RenewAt is when to renew a certificate: after two thirds of its life.
func RenewAt(c *x509.Certificate) time.Time {
	from, ok := Issued(c)
	if !ok {
		return c.NotAfter.Add(-lastDays)
	}
	return from.Add(c.NotAfter.Sub(from) / 3 * 2)
}

package mtls

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// A controller's signature covers data that passes through processes that could change it, to one that has the authority's
// certificate: configuration for hosts without files. purpose keeps a signature from being valid for anything else.
const purpose = "sluice configuration 1\n"

// Sign returns a controller's signature of data, and the certificate to verify it with.
func Sign(cert tls.Certificate, data []byte) (signature, der []byte, err error) {
	key, ok := cert.PrivateKey.(crypto.Signer)
	if !ok || len(cert.Certificate) == 0 {
		return nil, nil, errors.New("cannot sign: there is no key")
	}
	sum := digest(data)
	if signature, err = key.Sign(rand.Reader, sum, crypto.SHA256); err != nil {
		return nil, nil, fmt.Errorf("cannot sign: %w", err)
	}
	return signature, cert.Certificate[0], nil
}

// Verify checks that data was signed by a controller of the authority in authorityPEM.
func Verify(authorityPEM, der, signature, data []byte) error {
	pool, err := authority(authorityPEM, "the cluster's authority")
	if err != nil {
		return err
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		return fmt.Errorf("cannot read the certificate of who has signed: %w", err)
	}
	if _, err := verify([]*x509.Certificate{c}, pool, x509.ExtKeyUsageServerAuth, RoleController); err != nil {
		return err
	}
	key, ok := c.PublicKey.(*ecdsa.PublicKey)
	if !ok || !ecdsa.VerifyASN1(key, digest(data), signature) {
		return fmt.Errorf("the signature is not that of %s: %w", subject(c), ErrPeer)
	}
	return nil
}

func digest(data []byte) []byte {
	h := sha256.New()
	h.Write([]byte(purpose))
	h.Write(data)
	return h.Sum(nil)
}

// NameOf returns the name in a PEM certificate, without verifying it.
func NameOf(certificatePEM []byte) (string, error) {
	block, _ := pem.Decode(certificatePEM)
	if block == nil {
		return "", errors.New("the certificate is not PEM")
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "", fmt.Errorf("cannot read the certificate: %w", err)
	}
	id, err := identity(c)
	return id.Name, err
}

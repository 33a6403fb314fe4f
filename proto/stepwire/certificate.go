package stepwire

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"time"
)

// NewCertificate creates the certificate by which a step's nodes and srun recognise each other. It is self-signed: each side
// compares it with its own copy. It never expires, because clocks may be wrong.
func NewCertificate(job uint32) (certificate, key []byte, err error) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, err
	}
	t := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: fmt.Sprintf("step of job %d", job)},
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	if certificate, err = x509.CreateCertificate(rand.Reader, t, t, k.Public(), k); err != nil {
		return nil, nil, err
	}
	key, err = x509.MarshalPKCS8PrivateKey(k)
	return certificate, key, err
}

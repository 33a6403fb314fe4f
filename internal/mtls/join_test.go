package mtls

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var n1 = Identity{Role: RoleNode, Name: "n1"}

// authorityFor makes an authority; by is who signs it, nil for itself.
func authorityFor(t *testing.T, by *x509.Certificate, byKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, _, err := MakeKey()
	if err != nil {
		t.Fatal(err)
	}
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62))
	tpl := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: "authority " + serial.String()}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Unix(0, 0), NotAfter: time.Now().Add(time.Hour)}
	if by == nil {
		by, byKey = tpl, key
	}
	der, err := x509.CreateCertificate(rand.Reader, tpl, by, key.Public(), byKey)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c, key
}

// filesFor are those of a host, certified by an authority.
func filesFor(t *testing.T, id Identity, ca *x509.Certificate, caKey *ecdsa.PrivateKey) Files {
	t.Helper()
	key, keyPEM, err := MakeKey()
	if err != nil {
		t.Fatal(err)
	}
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62))
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: serial,
		Subject:   pkix.Name{CommonName: id.Name, OrganizationalUnit: []string{id.Role}},
		NotBefore: time.Unix(0, 0), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, ca,
		key.Public(), caKey)
	if err != nil {
		t.Fatal(err)
	}
	return Files{Authority: EncodeCertificate(ca.Raw), Certificate: EncodeCertificate(der), Key: keyPEM}
}

// TestStoreStopped stops Store after each of its changes to the folder: what is there is a pair that can be used, or none.
func TestStoreStopped(t *testing.T) {
	ours, oursKey := authorityFor(t, nil, nil)
	theirs, theirsKey := authorityFor(t, nil, nil)
	next := filesFor(t, n1, ours, oursKey)
	for what, old := range map[string]Files{"none": {}, "the same authority's": filesFor(t, n1, ours, oursKey),
		"another authority's": filesFor(t, n1, theirs, theirsKey)} {
		for _, apart := range []bool{false, true} { // key and certificate in files of their own, as issue writes them
			dir := t.TempDir()
			ca, crt, key := Paths(dir, RoleNode)
			if old.Key != nil {
				if err := Store(dir, RoleNode, old); err != nil {
					t.Fatal(err)
				}
				if apart {
					_ = os.WriteFile(key, old.Key, 0o600)
				}
			}
			// The states in between, as Store makes them one after the other.
			usable := func(step string) {
				f, err := HostFiles(dir, RoleNode)
				if err == nil && Accept(f, n1) != nil {
					t.Errorf("%s there before, %s: a pair that is not good", what, step)
				}
				if _, kerr := os.Stat(key); err != nil && kerr == nil {
					t.Errorf("%s there before, %s: there is a key that cannot be used: %v", what, step, err)
				}
			}
			if old.Key != nil && !goodWith(next.Authority, old.Certificate, old.Key) {
				_ = os.Remove(key)
				usable("the key removed")
				_ = os.Remove(crt)
			}
			usable("before the authority")
			_ = Write(ca, 0o644, next.Authority)
			usable("with the authority")
			_ = Write(key, 0o600, append(bytes.Clone(next.Key), next.Certificate...))
			usable("with the key")
			if err := Store(dir, RoleNode, next); err != nil { // again, after the crash
				t.Fatal(err)
			}
			if f, err := HostFiles(dir, RoleNode); err != nil || !bytes.Equal(f.Certificate, next.Certificate) {
				t.Errorf("%s there before: at last %v", what, err)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "*.key.*")); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		}
	}
}

func TestPendingKeyStays(t *testing.T) {
	dir := t.TempDir()
	_, first, err := PendingKey(dir, RoleNode)
	if err != nil {
		t.Fatal(err)
	}
	_, again, err := PendingKey(dir, RoleNode)
	if err != nil || !bytes.Equal(first, again) {
		t.Errorf("another key, %v", err)
	}
	if fi, err := os.Stat(NewKey(dir, RoleNode)); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", fi, err)
	}
	if err := os.Truncate(NewKey(dir, RoleNode), 20); err != nil {
		t.Fatal(err)
	}
	if _, _, err := PendingKey(dir, RoleNode); err != nil {
		t.Errorf("after a damage: %v", err)
	}
}

func TestFollows(t *testing.T) {
	a, aKey := authorityFor(t, nil, nil)
	b, _ := authorityFor(t, a, aKey)
	stranger, _ := authorityFor(t, nil, nil)
	bundle := func(all ...*x509.Certificate) (out []byte) {
		for _, c := range all {
			out = append(out, EncodeCertificate(c.Raw)...)
		}
		return out
	}
	for _, tt := range []struct {
		now, next []byte
		ok        bool
	}{
		{bundle(a), bundle(a), true},
		{bundle(a), bundle(b, a), true},
		{bundle(b, a), bundle(b), true},
		{bundle(a), bundle(stranger), false},
		{bundle(a), bundle(a, stranger), false},
		{bundle(a), nil, false},
		{bundle(a), []byte("x"), false},
	} {
		if err := Follows(tt.now, tt.next); (err == nil) != tt.ok {
			t.Errorf("%v", err)
		}
	}
}

func TestAccept(t *testing.T) {
	ca, caKey := authorityFor(t, nil, nil)
	other, _ := authorityFor(t, nil, nil)
	good := filesFor(t, n1, ca, caKey)
	if err := Accept(good, n1); err != nil {
		t.Error(err)
	}
	_, anotherKey, _ := MakeKey()
	for what, f := range map[string]Files{
		"another key":       {good.Authority, good.Certificate, anotherKey},
		"another authority": {EncodeCertificate(other.Raw), good.Certificate, good.Key},
		"no authority":      {nil, good.Certificate, good.Key},
		"another name":      filesFor(t, Identity{RoleNode, "n2"}, ca, caKey),
		"another role":      filesFor(t, Identity{RoleLogin, "n1"}, ca, caKey),
	} {
		if Accept(f, n1) == nil {
			t.Errorf("%s is accepted", what)
		}
	}
}

func TestRenewAt(t *testing.T) {
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	ext, err := IssuedAt(at)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{Extensions: []pkix.Extension{ext}, NotAfter: at.Add(30 * 24 * time.Hour)}
	if got, ok := Issued(c); !ok || !got.Equal(at) {
		t.Errorf("issued %v, %v", got, ok)
	}
	if got := RenewAt(c); !got.Equal(at.Add(20 * 24 * time.Hour)) {
		t.Errorf("due %v", got)
	}
	for _, bad := range [][]byte{nil, {0x30}, {0x30, 0}, append(bytes.Clone(ext.Value), 0)} {
		old := &x509.Certificate{Extensions: []pkix.Extension{{Id: usagePeriodID, Value: bad}}, NotAfter: at}
		if got := RenewAt(old); !got.Equal(at.Add(-lastDays)) {
			t.Errorf("%x: due %v", bad, got)
		}
	}
	if _, err := asn1.Unmarshal(ext.Value, &usagePeriod{}); err != nil {
		t.Error(err)
	}
}

func FuzzReadRequest(f *testing.F) {
	block, _ := pem.Decode([]byte(`-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgZi2nHcB7d4XnVh3V
-----END PRIVATE KEY-----`))
	if block != nil {
		f.Add(block.Bytes)
	}
	key, _, err := MakeKey()
	if err != nil {
		f.Fatal(err)
	}
	good, err := Request(key, n1)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)-3])
	f.Fuzz(func(t *testing.T, der []byte) {
		got, err := ReadRequest(der, n1)
		if err != nil {
			if !strings.Contains(err.Error(), "certificate request") {
				t.Errorf("%v says not what it is about", err)
			}
			return
		}
		r, err := x509.ParseCertificateRequest(der)
		if err != nil || r.CheckSignature() != nil || r.Subject.CommonName != "n1" || !got.Equal(r.PublicKey) {
			t.Errorf("accepted: %v, %+v", err, r)
		}
	})
}

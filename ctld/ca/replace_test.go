package ca

import (
	"bytes"
	"crypto/tls"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/internal/mtls"
)

// host is a host that has joined.
type host struct {
	id    mtls.Identity
	files mtls.Files
}

// renew does the host's part of a renewal: it checks the reply against the CAs that it trusts.
func (h *host) renew(t *testing.T, dir string) {
	t.Helper()
	f := sign(t, dir, h.id, time.Now())
	if h.files.Authority != nil {
		if err := mtls.Follows(h.files.Authority, f.Authority); err != nil {
			t.Fatal(err)
		}
	}
	if err := mtls.Accept(f, h.id); err != nil {
		t.Fatal(err)
	}
	h.files = f
}

func sign(t *testing.T, dir string, id mtls.Identity, now time.Time) mtls.Files {
	t.Helper()
	s := &Signer{Dir: dir, Life: HostLife, Now: func() time.Time { return now }}
	key, keyPEM, err := mtls.MakeKey()
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.Sign(id, &key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := s.Bundle()
	if err != nil {
		t.Fatal(err)
	}
	return mtls.Files{Authority: bundle, Certificate: mtls.EncodeCertificate(c.Raw), Key: keyPEM}
}

func (h *host) config(t *testing.T) *tls.Config {
	t.Helper()
	var l mtls.Live
	if err := l.Set(h.files); err != nil {
		t.Fatal(err)
	}
	return l.Config()
}

// start is the controller that starts, or reads its configuration again.
func (c cluster) start(t *testing.T) *tls.Config {
	t.Helper()
	if _, err := Provide(c.dir, c.dir, "head", mtls.RoleController, nil); err != nil {
		t.Fatal(err)
	}
	return config(t)(ServerTLS(c.dir))
}

func TestReplaceTheAuthority(t *testing.T) {
	c := newCluster(t)
	n1 := host{id: mtls.Identity{Role: mtls.RoleNode, Name: "n1"}}
	n2, away := host{id: mtls.Identity{Role: mtls.RoleNode, Name: "n2"}}, host{id: mtls.Identity{Role: mtls.RoleNode, Name: "n3"}}
	for _, h := range []*host{&n1, &n2, &away} {
		h.renew(t, c.dir)
	}
	meets := func(when string, server *tls.Config, h host, ok bool) {
		t.Helper()
		got, serr, cerr := shake(t, server, h.config(t))
		if good := got == h.id && serr == nil && cerr == nil; good != ok {
			t.Errorf("%s, %s: %+v, %v, %v", when, h.id.Name, got, serr, cerr)
		}
	}
	if _, err := Replace(c.dir); err != nil {
		t.Fatal(err)
	}
	if _, err := Replace(c.dir); err == nil || !strings.Contains(err.Error(), "not finished") {
		t.Errorf("twice: %v", err)
	}
	server := c.start(t)
	meets("before anybody has renewed", server, n1, true)
	n1.renew(t, c.dir)
	meets("with a certificate of the new one", server, n1, true)
	meets("with one of the old one", server, n2, true)
	n2.renew(t, c.dir)
	if n, err := Drop(c.dir); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	server = c.start(t)
	meets("when the old one is dropped", server, n1, true)
	meets("when the old one is dropped", server, n2, true)
	meets("when the old one is dropped", server, away, false)
	n1.renew(t, c.dir) // and believes the new one alone
	if all, err := mtls.ParseAuthorities(n1.files.Authority, ""); err != nil || len(all) != 1 {
		t.Errorf("%d authorities, %v", len(all), err)
	}
	meets("at last", server, n1, true)
	if n, err := Drop(c.dir); n != 0 || err != nil {
		t.Errorf("dropped again: %d, %v", n, err)
	}
}

// TestReplaceStopped: stopped between its two writes, the old authority goes on signing, and Drop takes the new one away.
func TestReplaceStopped(t *testing.T) {
	c := newCluster(t)
	h := host{id: mtls.Identity{Role: mtls.RoleNode, Name: "n1"}}
	h.renew(t, c.dir)
	key, _ := os.ReadFile(caKey(c.dir))
	if _, err := Replace(c.dir); err != nil {
		t.Fatal(err)
	}
	_ = os.WriteFile(caKey(c.dir), key, 0o600)
	h.renew(t, c.dir)
	if _, err := Drop(c.dir); err != nil {
		t.Fatal(err)
	}
	if _, serr, cerr := shake(t, c.start(t), h.config(t)); serr != nil || cerr != nil {
		t.Error(serr, cerr)
	}
}

// TestExtend: hosts that know the previous certificate and those that know the new one get on with both.
func TestExtend(t *testing.T) {
	c := newCluster(t)
	old, fresh := host{id: mtls.Identity{Role: mtls.RoleNode, Name: "n1"}}, host{id: mtls.Identity{Role: mtls.RoleLogin, Name: "l1"}}
	old.renew(t, c.dir)
	before, _ := os.ReadFile(caCrt(c.dir))
	if _, err := Extend(c.dir); err != nil {
		t.Fatal(err)
	}
	if after, _ := os.ReadFile(caCrt(c.dir)); bytes.Equal(before, after) {
		t.Error("it is the same certificate")
	}
	fresh.renew(t, c.dir)
	server := c.start(t)
	for _, h := range []*host{&old, &fresh} {
		if _, serr, cerr := shake(t, server, h.config(t)); serr != nil || cerr != nil {
			t.Errorf("%s: %v, %v", h.id.Name, serr, cerr)
		}
	}
	old.renew(t, c.dir)
}

// TestSignedForAWhile: a certificate ends when it should, and is renewed at two thirds of its life.
func TestSignedForAWhile(t *testing.T) {
	c := newCluster(t)
	at := time.Now().Add(-25 * 24 * time.Hour).Truncate(time.Second)
	leaf, err := mtls.LeafOf(sign(t, c.dir, mtls.Identity{Role: mtls.RoleNode, Name: "n1"}, at))
	if err != nil {
		t.Fatal(err)
	}
	if want := at.Add(HostLife); !leaf.NotAfter.Equal(want) || !mtls.RenewAt(leaf).Equal(at.Add(HostLife/3*2)) {
		t.Errorf("ends %v, want %v; renewed %v", leaf.NotAfter, want, mtls.RenewAt(leaf))
	}
	over := host{mtls.Identity{Role: mtls.RoleNode, Name: "n1"}, sign(t, c.dir, mtls.Identity{Role: mtls.RoleNode, Name: "n1"},
		time.Now().Add(-HostLife-time.Hour))}
	if got, serr, _ := shake(t, c.start(t), over.config(t)); serr == nil {
		t.Errorf("with a certificate that has ended: %+v", got)
	}
}

func TestCheckFiles(t *testing.T) {
	c := newCluster(t)
	if err := CheckFiles(c.dir); err != nil {
		t.Fatal(err)
	}
	for path, modes := range map[string][2]os.FileMode{c.dir: {0o777, 0o700}, caKey(c.dir): {0o640, 0o600}, caCrt(c.dir): {0o666, 0o644}} {
		_ = os.Chmod(path, modes[0])
		if err := CheckFiles(c.dir); err == nil || !strings.Contains(err.Error(), "chmod go-rwx "+path) {
			t.Errorf("%s with mode %#o: %v", path, modes[0], err)
		}
		_ = os.Chmod(path, modes[1])
	}
	if os.Geteuid() == 0 {
		_ = os.Chown(caKey(c.dir), 1, 1)
		if err := CheckFiles(c.dir); err == nil || !strings.Contains(err.Error(), "belongs to uid 1") {
			t.Errorf("a key of somebody else's: %v", err)
		}
	}
}

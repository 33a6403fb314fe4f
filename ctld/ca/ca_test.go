package ca

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/internal/mtls"
)

// cluster is an authority with a controller's folder and one for each node.
type cluster struct {
	dir   string
	nodes map[string]string
}

func newCluster(t *testing.T, nodes ...string) cluster {
	t.Helper()
	c := cluster{filepath.Join(t.TempDir(), "ca"), map[string]string{}}
	if err := Ensure(c.dir); err != nil {
		t.Fatal(err)
	}
	c.provide(t, c.dir, "head", mtls.RoleController)
	for _, n := range nodes {
		c.nodes[n] = filepath.Join(t.TempDir(), n)
		c.provide(t, c.nodes[n], n, mtls.RoleNode)
	}
	return c
}

func (c cluster) provide(t *testing.T, folder, name, role string) {
	t.Helper()
	if signed, err := Provide(c.dir, folder, name, role, []string{"localhost", "127.0.0.1"}); !signed || err != nil {
		t.Fatal(signed, err)
	}
}

// shake connects the two and returns whom the server sees, and what each side says.
func shake(t *testing.T, server, client *tls.Config) (peer mtls.Identity, serverErr, clientErr error) {
	t.Helper()
	a, b := net.Pipe()
	s, c := tls.Server(a, server), tls.Client(b, client)
	done := make(chan error, 1)
	go func() {
		err := s.Handshake()
		if err == nil {
			peer, err = mtls.PeerOf(s.ConnectionState())
		}
		if err == nil {
			_, err = s.Write([]byte{1})
		}
		a.Close()
		done <- err
	}()
	if clientErr = c.Handshake(); clientErr == nil {
		_, clientErr = c.Read(make([]byte, 1)) // in TLS 1.3 the client learns of a refusal after its handshake
	}
	b.Close()
	return peer, <-done, clientErr
}

func config(t *testing.T) func(c *tls.Config, err error) *tls.Config {
	return func(c *tls.Config, err error) *tls.Config {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
}

func TestNodeAndControllerKnowEachOther(t *testing.T) {
	c := newCluster(t, "n1", "n2")
	must := config(t)
	server := must(ServerTLS(c.dir))
	for name, folder := range c.nodes {
		got, serr, cerr := shake(t, server, must(mtls.Host(folder, mtls.RoleNode)))
		if want := (mtls.Identity{Role: mtls.RoleNode, Name: name}); got != want || serr != nil || cerr != nil {
			t.Errorf("%s: %+v, %v, %v", name, got, serr, cerr)
		}
	}
	login := filepath.Join(t.TempDir(), "tls")
	if _, err := Provide(c.dir, login, "login1", mtls.RoleLogin, []string{"login1"}); err != nil {
		t.Fatal(err)
	}
	got, serr, cerr := shake(t, server, must(mtls.Host(login, mtls.RoleLogin)))
	if got.Role != mtls.RoleLogin || serr != nil || cerr != nil {
		t.Errorf("a login host: %+v, %v, %v", got, serr, cerr)
	}
	if _, err := mtls.Host(login, mtls.RoleNode); err == nil {
		t.Error("the folder of a login host serves as a node's")
	}
	got, serr, cerr = shake(t, server, must(mtls.Host(c.dir, mtls.RoleController)))
	if got.Role != mtls.RoleController || serr != nil || cerr != nil {
		t.Errorf("%+v, %v, %v", got, serr, cerr)
	}
}

func TestStrangersAreRefused(t *testing.T) {
	ours, theirs := newCluster(t, "n1"), newCluster(t, "n1")
	must := config(t)
	node := must(mtls.Host(ours.nodes["n1"], mtls.RoleNode))
	server := must(ServerTLS(ours.dir))

	t.Run("a node of another cluster", func(t *testing.T) {
		if _, serr, _ := shake(t, server, must(mtls.Host(theirs.nodes["n1"], mtls.RoleNode))); serr == nil {
			t.Error("it was let in")
		}
	})
	t.Run("a controller of another cluster", func(t *testing.T) {
		if _, _, cerr := shake(t, must(ServerTLS(theirs.dir)), node); !errors.Is(cerr, mtls.ErrPeer) {
			t.Errorf("the node says %v", cerr)
		}
	})
	t.Run("a node that poses as the controller", func(t *testing.T) {
		posing := server.Clone()
		posing.Certificates = node.Certificates
		_, _, cerr := shake(t, posing, node)
		if !errors.Is(cerr, mtls.ErrPeer) || !strings.Contains(cerr.Error(), "role") {
			t.Errorf("the node says %v", cerr)
		}
	})
	t.Run("no certificate", func(t *testing.T) {
		bare := node.Clone()
		bare.Certificates = nil
		if _, serr, _ := shake(t, server, bare); serr == nil {
			t.Error("it was let in")
		}
	})
	t.Run("TLS 1.2", func(t *testing.T) {
		old := node.Clone()
		old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
		if _, serr, _ := shake(t, server, old); serr == nil {
			t.Error("it was let in")
		}
	})
}

func TestEnsureKeepsWhatIsThere(t *testing.T) {
	c := newCluster(t, "n1")
	before, _ := os.ReadFile(caCrt(c.dir))
	if info, err := os.Stat(caKey(c.dir)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key: %v, %v", info.Mode(), err)
	}
	os.Remove(caKey(c.dir)) // taken off the machine
	if err := Ensure(c.dir); err != nil {
		t.Error(err)
	}
	if after, _ := os.ReadFile(caCrt(c.dir)); string(after) != string(before) {
		t.Error("the authority changed")
	}
	if signed, err := Provide(c.dir, c.nodes["n1"], "n1", mtls.RoleNode, nil); signed || err != nil {
		t.Errorf("what is there is good: signed %v, %v", signed, err)
	}
	if _, _, err := Issue(c.dir, "n2", mtls.RoleNode, nil); err == nil || !strings.Contains(err.Error(), "ca.key") {
		t.Errorf("signing without the key: %v", err)
	}
}

func TestEnsureAfterACrashBetweenKeyAndCertificate(t *testing.T) {
	c := newCluster(t)
	os.Remove(caCrt(c.dir))
	if err := Ensure(c.dir); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Issue(c.dir, "n1", mtls.RoleNode, nil); err != nil {
		t.Error(err)
	}
}

func TestProvideReplacesWhatIsWrong(t *testing.T) {
	c, other := newCluster(t, "n1"), newCluster(t)
	folder := c.nodes["n1"]
	_, crt, key := mtls.Paths(folder, mtls.RoleNode)
	for name, harm := range map[string]func(){
		"certificate cut": func() { os.Truncate(crt, 30) },
		"key missing":     func() { os.Remove(key) },
		"key open":        func() { os.Chmod(key, 0o644) },
		"other authority": func() { Provide(other.dir, folder, "n1", mtls.RoleNode, nil) },
		"other name":      func() { Provide(c.dir, folder, "n7", mtls.RoleNode, nil) },
	} {
		harm()
		if signed, err := Provide(c.dir, folder, "n1", mtls.RoleNode, nil); !signed || err != nil {
			t.Errorf("%s: signed %v, %v", name, signed, err)
		}
		if _, err := mtls.Host(folder, mtls.RoleNode); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLoadExplains(t *testing.T) {
	c, other := newCluster(t, "n1"), newCluster(t, "n1")
	folder := c.nodes["n1"]
	caPath, crt, key := mtls.Paths(folder, mtls.RoleNode)
	theirs, _ := os.ReadFile(caCrt(other.dir))
	controller, _ := os.ReadFile(filepath.Join(c.dir, "ctld.crt"))
	controllerKey, _ := os.ReadFile(filepath.Join(c.dir, "ctld.key"))
	for _, tc := range []struct {
		name string
		harm func()
		says string
	}{
		{"open key", func() { os.Chmod(key, 0o640) }, "chmod 600"},
		{"no key", func() { os.Remove(key) }, "node.key"},
		{"not PEM", func() { os.WriteFile(caPath, []byte("x"), 0o600) }, "is not PEM"},
		{"other authority", func() { os.WriteFile(caPath, theirs, 0o600) }, "unknown authority"},
		{"a node's certificate as authority", func() { b, _ := os.ReadFile(crt); os.WriteFile(caPath, b, 0o600) },
			"not the certificate of an authority"},
		{"wrong role", func() { os.WriteFile(crt, controller, 0o600); os.WriteFile(key, controllerKey, 0o600) }, "role"},
	} {
		tc.harm()
		if _, err := mtls.Host(folder, mtls.RoleNode); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", tc.name, err)
		}
		os.Remove(caPath)
		if _, err := Provide(c.dir, folder, "n1", mtls.RoleNode, nil); err != nil {
			t.Fatal(err)
		}
	}
}

func TestIssueRefuses(t *testing.T) {
	c := newCluster(t)
	for _, tc := range [][2]string{{"", "node"}, {"a b", "node"}, {"a\nb", "node"}, {"n\u202e1", "node"}, {"n1", "root"},
		{strings.Repeat("n", 256), "node"}} {
		if _, _, err := Issue(c.dir, tc[0], tc[1], nil); err == nil {
			t.Errorf("name %q, role %q: signed", tc[0], tc[1])
		}
	}
	crt, key, err := Issue(c.dir, "n1", "node", []string{"n1", "10.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tls.X509KeyPair(crt, key); err != nil {
		t.Error(err)
	}
	block, _ := pem.Decode(crt)
	x, err := x509.ParseCertificate(block.Bytes)
	if err != nil || x.IsCA || x.VerifyHostname("n1") != nil || x.VerifyHostname("10.0.0.1") != nil {
		t.Errorf("%v, %+v", err, x.Subject)
	}
}

package hosttest_test

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/ctld/ca"
	"github.com/sluice-hpc/sluice/internal/mtls"
	"github.com/sluice-hpc/sluice/internal/test/hosttest"
)

// authority is the folder of the cluster's authority, as seen from the machine.
func (c *cluster) authority() string { return c.ctl.Path("/var/spool/sluice-ctld/tls") }

// aged gives a host a certificate of three hours that was issued two hours ago: its time to be renewed has just come.
func (c *cluster) aged(h *hosttest.Host, role string) {
	c.t.Helper()
	s := ca.Signer{Dir: c.authority(), Life: 3 * time.Hour, Now: func() time.Time { return time.Now().Add(-2 * time.Hour) }}
	key, keyPEM, err := mtls.MakeKey()
	must(c.t, err)
	cert, err := s.Sign(mtls.Identity{Role: role, Name: h.Name}, &key.PublicKey)
	must(c.t, err)
	bundle, err := s.Bundle()
	must(c.t, err)
	f := mtls.Files{Authority: bundle, Certificate: mtls.EncodeCertificate(cert.Raw), Key: keyPEM}
	must(c.t, mtls.Store(h.Etc("sluice/tls"), role, f))
	// Where sluice-ctld issue leaves a copy for the controller.
	issued := filepath.Join(c.authority(), "issued")
	must(c.t, os.MkdirAll(issued, 0o755))
	must(c.t, os.Chown(issued, 5000, 5000))
	path := filepath.Join(issued, mtls.Serial(cert)+".crt")
	must(c.t, os.WriteFile(path, f.Certificate, 0o644))
	must(c.t, os.Chown(path, 5000, 5000))
}

// certificate is the one that a host has on disk.
func (c *cluster) certificate(h *hosttest.Host, role string) *x509.Certificate {
	c.t.Helper()
	f, err := mtls.HostFiles(h.Etc("sluice/tls"), role)
	must(c.t, err)
	leaf, err := mtls.LeafOf(f)
	must(c.t, err)
	return leaf
}

// TestCertificatesFollow: a compute host and a login host renew their certificates when it is time, without anybody's help, and again when
// the cluster's authority is replaced. Neither the job nor the commands on these hosts notice, also when the old authority is dropped.
func TestCertificatesFollow(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	node := c.compute[0]
	roles := map[*hosttest.Host]string{node: mtls.RoleNode, c.login: mtls.RoleLogin}
	w := c.gate("through", "-w", "c1")
	w.says([3]string{"0", "c1", "start"})
	c.noded["c1"].Signal(syscall.SIGTERM)
	c.noded["c1"].Wait(hosttest.Patience)
	works := func(when string) {
		t.Helper()
		for h := range roles {
			c.await(when+": squeue on "+h.Name, func() bool {
				r := h.Run("alice", nil, "squeue", "-h", "-o", "%t")
				return r.Code == 0 && r.Out == "R\n"
			})
		}
	}
	old := map[*hosttest.Host]string{}
	for h, role := range roles {
		c.aged(h, role)
		old[h] = mtls.Serial(c.certificate(h, role))
	}
	c.startNoded(node)
	c.noded["login"] = c.login.Start("noded", filepath.Join(bin, "sluice-noded"), "--login")
	for h, role := range roles {
		c.await(h.Name+" has renewed its certificate", func() bool { return mtls.Serial(c.certificate(h, role)) != old[h] })
	}
	c.linked(1)
	works("renewed")

	c.ok(c.ctl.Run("", nil, "sluice-ctld", "authority", "--replace"))
	c.ok(c.ctl.Run("", nil, "scontrol", "reconfigure"))
	all, err := ca.Authorities(c.authority())
	must(t, err)
	if len(all) != 2 {
		t.Fatalf("while the authority is replaced there are %d", len(all))
	}
	for h, role := range roles {
		c.await(h.Name+" has a certificate of the new authority", func() bool {
			works("while the authority is replaced") // a login host hears of it with its commands
			return mtls.SignerOf(c.certificate(h, role)) == mtls.AuthorityID(all[0])
		})
	}
	c.linked(1)
	c.ok(c.ctl.Run("", nil, "sluice-ctld", "authority", "--drop-old"))
	c.ok(c.ctl.Run("", nil, "scontrol", "reconfigure"))
	works("the old authority is dropped")
	c.ctld.Signal(syscall.SIGTERM) // whoever connects now shows what it has
	c.ctld.Wait(hosttest.Patience)
	c.old = append(c.old, c.ctld)
	c.startCtld()
	c.linked(1)
	works("the controller was started again")
	w.open()
	w.once("c1")
}

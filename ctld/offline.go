package ctld

import (
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-hpc/sluice/conf"
	"github.com/sluice-hpc/sluice/ctld/ca"
	"github.com/sluice-hpc/sluice/ctld/journal"
	"github.com/sluice-hpc/sluice/internal/mtls"
	"golang.org/x/sys/unix"
)

// Issue writes the files with which a host's daemon identifies itself (ca.crt, ROLE.crt, ROLE.key) to a directory; role is one of package
// mtls. If the cluster has no authority, it makes one when found is set; otherwise that is an error, because a mistyped state directory has
// none. signed is false when the directory already held a valid certificate for the host.
func Issue(stateDir, host, role, out string, found bool) (signed bool, err error) {
	dir := filepath.Join(stateDir, "tls")
	if state, err := os.Open(stateDir); err == nil { // otherwise the error follows below
		defer state.Close()
		// One after the other: two processes that make an authority at the same time would issue certificates that only one of them knows.
		if err := unix.Flock(int(state.Fd()), unix.LOCK_EX); err != nil {
			return false, fmt.Errorf("cannot lock %s: %w", stateDir, err)
		}
	}
	if found {
		err = asOwnerOf(stateDir, func() error { return ca.Ensure(dir) })
	} else {
		err = ca.Check(dir)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return false,
			fmt.Errorf("cannot issue a certificate: there is no cluster authority in %s; --state takes the controller's state "+
				"directory. The controller creates its authority at its first start; --new-authority creates it before", dir)
	}
	if err != nil {
		return false, err
	}
	if err := foreign(out, host, role); err != nil {
		return false, err
	}
	if signed, err = ca.Provide(dir, out, host, role, []string{host}); err != nil || !signed {
		return signed, err
	}
	_, crt, _ := mtls.Paths(out, role)
	if err := leaveCopy(stateDir, crt); err != nil {
		return true, fmt.Errorf("the certificate was issued but cannot be registered with the controller: `sluice certs` shows it only once its host has connected, and a revoked host stays shut out: %w", err)
	}
	return true, nil
}

// OthersAreOff refuses a restore while a controller named by slurm.conf answers on another host: both would allocate the nodes.
func OthersAreOff(c *conf.Config) error {
	own, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("cannot list the addresses of this host: %w", err)
	}
	return othersAreOff(c, own)
}

// isOn reports whether an address belongs to one of this host's interfaces; the loopback interface has its whole network.
func isOn(own []net.Addr, a string) bool {
	ip := net.ParseIP(a)
	return slices.ContainsFunc(own, func(o net.Addr) bool {
		n, ok := o.(*net.IPNet)
		return ok && (n.IP.Equal(ip) || n.IP.IsLoopback() && n.Contains(ip))
	})
}

func othersAreOff(c *conf.Config, own []net.Addr) error {
	for _, h := range c.SlurmctldHosts {
		addrs, _ := net.LookupHost(cmp.Or(h.Addr, h.Name)) // an unresolvable name has no controller
		for _, a := range addrs {
			if isOn(own, a) {
				continue
			}
			conn, err := net.DialTimeout("tcp", net.JoinHostPort(a, strconv.Itoa(c.SlurmctldPort)), answerTimeout)
			if err == nil {
				_ = conn.Close()
				return fmt.Errorf("cannot restore: the controller on %s (%s, port %d) still answers: stop and disable it there "+
					"(systemctl disable --now sluice-ctld); if another program answers there, add --others-off", h.Name, a, c.SlurmctldPort)
			}
		}
	}
	return nil
}

// answerTimeout is the time that a controller has to answer.
const answerTimeout = 3 * time.Second

// Restore replaces a damaged database by the newest good copy, or by the named backup. It returns a description of the result.
func Restore(stateDir, from string) (string, error) {
	var r journal.Restored
	err := asOwnerOf(stateDir, func() (err error) {
		r, err = journal.Restore(stateDir, from)
		return err
	})
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("restored from %s (written %s, commit %d) as generation %d; new job ids begin above %d", r.From,
		r.Written.Format("2006-01-02T15:04:05"), r.Seq, r.Generation, r.IDFloor)
	if r.Replayed > 0 {
		text += fmt.Sprintf("\nthe last %d commits were added from the redo log", r.Replayed)
	}
	if r.BadKeptAs != "" {
		text += "\nthe damaged database is kept as " + r.BadKeptAs
	}
	for _, n := range r.Notes {
		text += "\nnote: " + n
	}
	return text, nil
}

// Authority shows or changes the cluster's authority: replace begins its replacement, drop ends it, extend prolongs it. It returns a
// description of the result. A running controller applies it at scontrol reconfigure.
func Authority(stateDir string, replace, drop, extend bool) (text string, err error) {
	dir := filepath.Join(stateDir, "tls")
	err = asOwnerOf(stateDir, func() error {
		switch {
		case replace:
			made, err := ca.Replace(dir)
			if err != nil {
				return err
			}
			text = fmt.Sprintf("authority %s signs from now on, and the old one is still accepted. Run scontrol reconfigure: hosts then renew their certificates. When `sluice certs` shows none of the old authority in use, run sluice-ctld authority --drop-old.\n", mtls.AuthorityID(made))
		case drop:
			n, err := ca.Drop(dir)
			if err != nil {
				return err
			}
			if text = "there is no old authority\n"; n > 0 {
				text = "the old authority is no longer accepted. Run scontrol reconfigure; hosts that have not renewed must join again.\n"
			}
		case extend:
			made, err := ca.Extend(dir)
			if err != nil {
				return err
			}
			text = fmt.Sprintf("authority %s is valid until %s, with the same key. Run scontrol reconfigure.\n", mtls.AuthorityID(made),
				made.NotAfter.Format("2006-01-02"))
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	all, err := ca.Authorities(dir)
	for i, c := range all {
		what := "is accepted"
		if i == 0 {
			what = "signs"
		}
		text += fmt.Sprintf("authority %s %s: %q, until %s\n", mtls.AuthorityID(c), what, c.Subject.CommonName,
			c.NotAfter.Format("2006-01-02"))
	}
	return text, err
}

// leaveCopy leaves a copy of a certificate for the controller's list.
func leaveCopy(stateDir, crt string) error {
	b, err := os.ReadFile(crt)
	if err != nil {
		return err
	}
	block, _ := pem.Decode(b)
	if block == nil {
		return fmt.Errorf("%s is not PEM", crt)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return err
	}
	dir := issuedDir(filepath.Join(stateDir, "tls"))
	return asOwnerOf(stateDir, func() error {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		return mtls.Write(filepath.Join(dir, mtls.Serial(c)+".crt"), 0o600, mtls.EncodeCertificate(block.Bytes))
	})
}

// foreign refuses a directory that holds the key of another host, which would be overwritten.
func foreign(out, name, role string) error {
	_, crt, _ := mtls.Paths(out, role)
	b, err := os.ReadFile(crt)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot issue a certificate: %w", err)
	}
	if block, _ := pem.Decode(b); block != nil {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && c.Subject.CommonName != name {
			return fmt.Errorf("cannot issue a certificate for %s: %s holds the certificate of %s, whose key would be lost; name "+
				"another directory, or remove it", name, out, c.Subject.CommonName)
		}
	}
	return nil
}

package hostconf

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io/fs"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/internal/mtls"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// signer is an authority with a certificate of some role.
type signer struct {
	authority []byte
	cert      tls.Certificate
}

func newSigner(t testing.TB, role string) signer {
	t.Helper()
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Unix(0, 0),
		NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	must(t, err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	c := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "c", OrganizationalUnit: []string{role}},
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, c, ca, key.Public(), caKey)
	must(t, err)
	return signer{authority: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER}),
		cert: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}}
}

func (s signer) sign(t testing.TB, b *pb.ConfigurationBundle) *pb.Configuration {
	t.Helper()
	raw, err := proto.Marshal(b)
	must(t, err)
	signature, der, err := mtls.Sign(s.cert, raw)
	must(t, err)
	return &pb.Configuration{Bundle: raw, Signature: signature, Certificate: der}
}

func file(name string, mode uint32, data string) *pb.ConfigurationFile {
	sum := sha256.Sum256([]byte(data))
	return &pb.ConfigurationFile{Path: "/etc/slurm/" + name, Name: name, Mode: mode, Data: []byte(data), Sha256: sum[:]}
}

const slurmConf = "ClusterName=c\nSlurmctldHost=h\nProlog=/etc/slurm/prolog.d/*.sh\nInclude /etc/slurm/nodes.conf\nPartitionName=p Nodes=ALL\n"

// good is a configuration that can be taken.
func good(prolog string) *pb.ConfigurationBundle {
	return &pb.ConfigurationBundle{Path: "/etc/slurm/slurm.conf", Files: []*pb.ConfigurationFile{
		file("nodes.conf", 0o644, "NodeName=n1 CPUs=2\n"), file("prolog.d/1.sh", 0o755, prolog), file("prolog.d/README", 0o644, "\n"),
		file("slurm.conf", 0o644, slurmConf)}}
}

// tree is what a folder has, by path.
func tree(t testing.TB, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	must(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil || e.IsDir():
			return err
		case e.Type() == fs.ModeSymlink:
			out[path], err = os.Readlink(path)
		default:
			var b []byte
			b, err = os.ReadFile(path)
			out[path] = string(b)
		}
		return err
	}))
	return out
}

func newStore(t testing.TB, s signer) *Store {
	return &Store{Dir: filepath.Join(t.TempDir(), "spool", "conf"), Authority: s.authority}
}

// TestPutAndLoad: what was taken is there after a restart, and says where its programs are.
func TestPutAndLoad(t *testing.T) {
	s := newSigner(t, mtls.RoleController)
	st := newStore(t, s)
	if _, err := st.Load(); !errors.Is(err, ErrNone) {
		t.Errorf("an empty store: %v", err)
	}
	put, err := st.Put(s.sign(t, good("#!/bin/sh\n")))
	must(t, err)
	b, err := st.Load()
	must(t, err)
	if b.Hash != put.Hash {
		t.Errorf("loaded %s, put %s", b.Hash, put.Hash)
	}
	cfg, err := b.Config()
	must(t, err)
	if n, ok := cfg.Node("n1"); !ok || n.CPUs != 2 {
		t.Errorf("the included file was not read: %v", cfg.Nodes)
	}
	for path, want := range map[string]string{
		"/etc/slurm/prolog.d/1.sh":    st.Dir + "/current/prolog.d/1.sh",
		"/etc/slurm/prolog.d/*.sh":    st.Dir + "/current/prolog.d/*.sh",
		"/etc/slurm/prolog.d/README":  "/etc/slurm/prolog.d/README", // no program
		"/etc/slurm/other.sh":         "/etc/slurm/other.sh",
		"/usr/sbin/*":                 "/usr/sbin/*",
		"/etc/slurm/../../bin/sh":     "/etc/slurm/../../bin/sh",
		"":                            "",
		"/etc/slurm/slurm.conf":       "/etc/slurm/slurm.conf",
		"/etc/slurm/prolog.d/../1.sh": "/etc/slurm/prolog.d/../1.sh",
	} {
		if got := b.Local(path); got != want {
			t.Errorf("%s is at %s, want %s", path, got, want)
		}
	}
	if fi, err := os.Stat(st.Dir + "/current/prolog.d/1.sh"); err != nil || fi.Mode().Perm() != 0o755 {
		t.Errorf("the program: %v, %v", fi, err)
	}
	second, err := st.Put(s.sign(t, good("#!/bin/sh\ntrue\n")))
	must(t, err)
	if text, err := os.ReadFile(b.Local("/etc/slurm/prolog.d/1.sh")); err != nil || string(text) != "#!/bin/sh\ntrue\n" {
		t.Errorf("a path that was given before leads to %q, %v", text, err)
	}
	if _, err := st.Put(s.sign(t, good("#!/bin/sh\nfalse\n"))); err != nil {
		t.Error(err)
	}
	entries, err := os.ReadDir(st.Dir)
	must(t, err)
	if len(entries) != 4 || second.Hash == b.Hash { // bundle.pb, current, the one in force and the one before
		t.Errorf("there are %v", entries)
	}
}

// TestRefused: nothing of what is not right is kept.
func TestRefused(t *testing.T) {
	s, other, node := newSigner(t, mtls.RoleController), newSigner(t, mtls.RoleController), newSigner(t, mtls.RoleNode)
	st := newStore(t, s)
	_, err := st.Put(s.sign(t, good("#!/bin/sh\n")))
	must(t, err)
	before := tree(t, st.Dir)
	with := func(change func(*pb.ConfigurationBundle)) *pb.Configuration {
		b := good("#!/bin/sh\nnew\n")
		change(b)
		return s.sign(t, b)
	}
	add := func(f *pb.ConfigurationFile) *pb.Configuration {
		return with(func(b *pb.ConfigurationBundle) { b.Files = append(b.Files, f) })
	}
	named := func(name string) *pb.Configuration {
		f := file("x", 0o755, "x")
		f.Name = name
		return add(f)
	}
	flipped := s.sign(t, good("#!/bin/sh\nnew\n"))
	flipped.Bundle[len(flipped.Bundle)/2] ^= 1
	byNode := node.sign(t, good("#!/bin/sh\nnew\n"))
	for what, c := range map[string]struct {
		c    *pb.Configuration
		want string
	}{
		"nothing":             {&pb.Configuration{}, "does not come from the controller"},
		"not signed":          {&pb.Configuration{Bundle: flipped.Bundle}, "does not come from the controller"},
		"changed on the way":  {flipped, "signature"},
		"of another cluster":  {other.sign(t, good("#!/bin/sh\nnew\n")), "does not come from the controller"},
		"signed by a node":    {byNode, "does not come from the controller"},
		"a damaged file":      {with(func(b *pb.ConfigurationBundle) { b.Files[1].Data = []byte("x") }), "SHA-256"},
		"a path out of it":    {named("../../../etc/cron.d/x"), "not below its directory"},
		"an absolute name":    {named("/etc/cron.d/x"), "not below its directory"},
		"a name that is none": {named("a//b"), "not below its directory"},
		"no name":             {named(""), "not below its directory"},
		"twice":               {add(file("slurm.conf", 0o644, slurmConf)), "twice"},
		"a file as a folder":  {add(file("slurm.conf/x", 0o644, "")), "both as a file and as a directory"},
		"setuid":              {add(file("x", 0o4755, "x")), "mode"},
		"writable by all":     {add(file("x", 0o777, "x")), "mode"},
		"without slurm.conf":  {with(func(b *pb.ConfigurationBundle) { b.Files = b.Files[:3] }), "lacks its slurm.conf"},
		"an unknown key": {with(func(b *pb.ConfigurationBundle) {
			b.Files[3] = file("slurm.conf", 0o644, slurmConf+"NoSuchKey=1\n")
		}), "NoSuchKey"},
		"without what it says": {with(func(b *pb.ConfigurationBundle) { b.Files = b.Files[1:] }), "nodes.conf"},
		"too large":            {add(file("large", 0o644, strings.Repeat("x", maxBundle))), "more than the limit"},
	} {
		if _, err := st.Put(c.c); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
		if after := tree(t, st.Dir); !maps.Equal(before, after) {
			t.Fatalf("%s has changed what is kept", what)
		}
	}
}

// TestHalfWritten: a daemon that was killed, or a disk, left something that is not whole.
func TestHalfWritten(t *testing.T) {
	s := newSigner(t, mtls.RoleController)
	st := newStore(t, s)
	b, err := st.Put(s.sign(t, good("#!/bin/sh\n")))
	must(t, err)
	whole := tree(t, st.Dir)
	program := filepath.Join(st.Dir, folderOf(b), "prolog.d/1.sh")
	for what, damage := range map[string]func() error{
		"a program cut short":    func() error { return os.Truncate(program, 3) },
		"a program changed":      func() error { return os.WriteFile(program, []byte("#!/bin/no\n"), 0o755) },
		"a program gone":         func() error { return os.Remove(program) },
		"the mode changed":       func() error { return os.Chmod(program, 0o644) },
		"the folder gone":        func() error { return os.RemoveAll(filepath.Dir(filepath.Dir(program))) },
		"the link gone":          func() error { return os.Remove(filepath.Join(st.Dir, current)) },
		"killed before the link": func() error { return st.replace(current, func(p string) error { return os.Symlink("elsewhere", p) }) },
	} {
		must(t, damage())
		if _, err := st.Load(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if after := tree(t, st.Dir); !maps.Equal(whole, after) {
			t.Errorf("%s: not repaired", what)
		}
		if fi, err := os.Stat(program); err != nil || fi.Mode().Perm() != 0o755 {
			t.Errorf("%s: %v, %v", what, fi, err)
		}
	}
	// What was being written when it was killed is in nobody's way.
	must(t, os.MkdirAll(filepath.Join(st.Dir, fresh+"123", "x"), 0o755))
	must(t, os.WriteFile(filepath.Join(st.Dir, fresh+kept), []byte("half"), 0o600))
	if _, err := st.Put(s.sign(t, good("#!/bin/sh\nnew\n"))); err != nil {
		t.Error(err)
	}
	for path := range tree(t, st.Dir) {
		if strings.Contains(path, fresh) {
			t.Errorf("%s is left", path)
		}
	}
	for what, text := range map[string]string{"nothing": "", "half": "\x0a\xff\x01x", "other bytes": "what"} {
		must(t, os.WriteFile(filepath.Join(st.Dir, kept), []byte(text), 0o600))
		if _, err := st.Load(); err == nil || errors.Is(err, ErrNone) {
			t.Errorf("%s in place of what was kept: %v", what, err)
		}
	}
	if _, err := st.Put(s.sign(t, good("#!/bin/sh\nnewer\n"))); err != nil {
		t.Errorf("after damage: %v", err)
	}
}

// TestDiskFull: all stays as it was while a configuration cannot be written, and it is taken once it can.
func TestDiskFull(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a small file system")
	}
	s := newSigner(t, mtls.RoleController)
	disk := t.TempDir()
	if err := unix.Mount("none", disk, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() { must(t, unix.Unmount(disk, 0)) })
	st := &Store{Dir: filepath.Join(disk, "conf"), Authority: s.authority}
	_, err := st.Put(s.sign(t, good("#!/bin/sh\n")))
	must(t, err)
	before := tree(t, st.Dir)
	next := s.sign(t, good("#!/bin/sh\n"+strings.Repeat("#", 600<<10))) // unpacked it has room, and not once more
	for _, left := range []int{0, 8 << 10, 610 << 10, 0} {
		must(t, os.WriteFile(filepath.Join(disk, "ballast"), nil, 0o600))
		f, err := os.OpenFile(filepath.Join(disk, "ballast"), os.O_WRONLY, 0)
		must(t, err)
		_, _ = f.Write(make([]byte, 2<<20)) // until there is no room
		fi, err := f.Stat()
		must(t, err)
		must(t, errors.Join(f.Truncate(max(fi.Size()-int64(left), 0)), f.Close()))
		if _, err := st.Put(next); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("with %d bytes: %v", left, err)
		}
		b, err := st.Load()
		must(t, err)
		if text, err := os.ReadFile(b.Local("/etc/slurm/prolog.d/1.sh")); err != nil || string(text) != "#!/bin/sh\n" {
			t.Errorf("with %d bytes the program is %.20q, %v", left, text, err)
		}
		must(t, os.Remove(filepath.Join(disk, "ballast")))
	}
	for path, text := range before {
		if now, err := os.ReadFile(path); filepath.Base(path) == kept && (err != nil || string(now) != text) {
			t.Errorf("%s has changed: %v", path, err)
		}
	}
	if _, err := st.Put(s.sign(t, good("#!/bin/sh\nsmall\n"))); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

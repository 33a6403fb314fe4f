package wire

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestConfPath: what is named, then what administrators write, then what the node daemon has fetched.
func TestConfPath(t *testing.T) {
	dir := t.TempDir()
	usual, fetched, other := filepath.Join(dir, "usual"), filepath.Join(dir, "fetched"), filepath.Join(dir, "other")
	for _, c := range []struct {
		what       string
		there      []string
		named, job string
		want       string
	}{
		{"named", []string{usual, fetched, other}, other, "", other},
		{"named and missing", []string{usual, fetched}, other, "", other},
		{"of a job from another host", []string{usual, fetched}, other, "7", usual},
		{"of a job from another host, here fetched", []string{fetched}, other, "7", fetched},
		{"of a job from this host", []string{usual, other}, other, "7", other},
		{"of a job, nothing is there", nil, other, "7", other},
		{"not named", []string{usual, fetched}, "", "", usual},
		{"fetched", []string{fetched}, "", "", fetched},
		{"none", nil, "", "", usual},
	} {
		for _, path := range []string{usual, fetched, other} {
			_ = os.Remove(path)
		}
		for _, path := range c.there {
			if err := os.WriteFile(path, []byte("ClusterName=c\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		env := map[string]string{"SLURM_CONF": c.named, "SLURM_JOB_ID": c.job}
		if got := confPath(func(key string) string { return env[key] }, usual, fetched); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
}

func TestSocketBesideConfiguration(t *testing.T) {
	conf, run := filepath.Join(t.TempDir(), "slurm.conf"), t.TempDir()
	env := map[string]string{"SLURM_CONF": conf}
	getenv := func(k string) string { return env[k] }
	if _, err := socketPath(getenv, run); err == nil || !strings.Contains(err.Error(), conf) {
		t.Errorf("without a file: %v", err)
	}
	for text, want := range map[string]string{
		"ClusterName=Lab\n": "lab",
		"# ClusterName=no\n  clustername = big  # comment": "big",
		"SlurmctldHost=x\n": "",
	} {
		if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := socketPath(getenv, run)
		if want != "" && (err != nil || got != filepath.Join(run, want, "ctld.sock")) {
			t.Errorf("%q: %q, %v", text, got, err)
		}
		if want == "" && err == nil {
			t.Errorf("%q: no error", text)
		}
	}
	// The socket of a cluster of `sluice up` lies beside its slurm.conf; a plain file there is none.
	socket := filepath.Join(filepath.Dir(conf), "run", "ctld.sock")
	if err := errors.Join(os.WriteFile(conf, []byte("ClusterName=lab\n"), 0o600), os.Mkdir(filepath.Dir(socket), 0o700),
		os.WriteFile(socket, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if got, err := socketPath(getenv, run); got != filepath.Join(run, "lab", "ctld.sock") {
		t.Errorf("a plain file is taken for a socket: %q, %v", got, err)
	}
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	// While its controller restarts there is no socket, but the record of the cluster.
	if err := os.WriteFile(filepath.Join(filepath.Dir(conf), "cluster.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := socketPath(getenv, run); got != socket {
		t.Errorf("of a cluster whose controller restarts: %q, %v", got, err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if got, err := socketPath(getenv, run); got != socket {
		t.Errorf("beside slurm.conf: %q, %v", got, err)
	}
	env["SLUICE_SOCKET"] = "/x"
	if got, _ := socketPath(getenv, run); got != "/x" {
		t.Errorf("SLUICE_SOCKET gave %q", got)
	}
}

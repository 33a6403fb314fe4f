package confcheck

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/client/command"
)

func sluiceConf(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	Verb().Main(&command.Env{Name: "sluice conf", Stdout: &out, Stderr: &errs}, args)
	return out.String(), errs.String()
}

func TestConfCheck(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := write("good.conf", "ClusterName=c\nSlurmctldHost=h\nAuthType=auth/munge\nNodeName=n1\nPartitionName=p Nodes=n1 Default=YES\n")
	out, errs := sluiceConf(t, "check", good)
	if errs != "" || !strings.Contains(out, "good.conf:3: ignored: AuthType") ||
		!strings.Contains(out, "no faults; cluster c, 1 node, 1 partition\n") {
		t.Errorf("%s\n%s", errs, out)
	}
	bad := write("bad.conf", "ClusterName=c\nSlurmctldHost=h\nNodeNme=n1\nKillWait=soon\n")
	out, errs = sluiceConf(t, "check", bad)
	if errs == "" || !strings.Contains(out, "bad.conf:3: unknown key NodeNme (did you mean NodeName?)") ||
		!strings.Contains(out, "bad.conf:4: KillWait: ") {
		t.Errorf("%s\n%s", errs, out)
	}
	const missing = "sluice conf check: error: cannot read configuration /nowhere/slurm.conf: no such file or directory\n"
	if _, errs = sluiceConf(t, "check", "/nowhere/slurm.conf"); errs != missing {
		t.Errorf("%q, want %q", errs, missing)
	}
}

// TestConfCheckOfPlugins: what keeps the controller from starting is said, and a key that changes nothing.
func TestConfCheckOfPlugins(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "slurm.conf")
	text := "ClusterName=c\nSlurmctldHost=h\nJobSubmitPlugins=lua\nAuthType=auth/munge\nNodeName=n1\nPartitionName=p Nodes=n1 Default=YES\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs := sluiceConf(t, "check", path)
	if errs == "" || !strings.Contains(out, "slurm.conf:3: JobSubmitPlugins=lua: cannot use "+dir+"/job_submit.lua: no such file") ||
		!strings.Contains(out, "slurm.conf:4: ignored: AuthType — Sluice authenticates local callers by their socket") {
		t.Errorf("%s\n%s", errs, out)
	}
}

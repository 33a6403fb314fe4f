package admin

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/client/cluster"
)

func sluice(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	err = Run(args, nil, &out, &errs)
	return out.String(), err
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
	out, err := sluice(t, "conf", "check", good)
	if err != nil || !strings.Contains(out, "good.conf:3: ignored: AuthType") ||
		!strings.Contains(out, "no faults; cluster c, 1 node, 1 partition\n") {
		t.Errorf("%v\n%s", err, out)
	}
	bad := write("bad.conf", "ClusterName=c\nSlurmctldHost=h\nNodeNme=n1\nKillWait=soon\n")
	out, err = sluice(t, "conf", "check", bad)
	if err == nil || !strings.Contains(out, "bad.conf:3: unknown key NodeNme (did you mean NodeName?)") ||
		!strings.Contains(out, "bad.conf:4: KillWait: ") {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err := sluice(t, "conf", "check", good, bad); err == nil {
		t.Error("two files were accepted")
	}
}

func TestStoppedSays(t *testing.T) {
	for want, s := range map[string]cluster.Stopped{
		"there is no cluster in /d":                               {Dir: "/d"},
		"cluster c was not running; nothing is left running":      {Dir: "/d", Cluster: "c"},
		"cluster c is stopped: 1 daemon; nothing is left running": {Dir: "/d", Cluster: "c", Daemons: 1},
		"cluster c is stopped: 3 daemons, 1 running job cancelled; nothing is left running, and /d is wiped": {
			Dir: "/d", Cluster: "c", Daemons: 3, Running: 1, Wiped: true},
		"cluster c is stopped: 3 daemons, 2 running and 1 pending jobs cancelled; nothing is left running": {
			Dir: "/d", Cluster: "c", Daemons: 3, Running: 2, Pending: 1},
	} {
		if got := stopped(&s); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// TestConfCheckOfPlugins: what keeps the controller from starting is said, and a plugin that changes nothing.
func TestConfCheckOfPlugins(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "slurm.conf")
	text := "ClusterName=c\nSlurmctldHost=h\nJobSubmitPlugins=lua\nPreemptType=preempt/qos\nPreemptMode=CANCEL\nNodeName=n1\n" +
		"PartitionName=p Nodes=n1 Default=YES\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := sluice(t, "conf", "check", path)
	if err == nil || !strings.Contains(out, "slurm.conf:3: JobSubmitPlugins=lua: cannot use "+dir+"/job_submit.lua: no such file") ||
		!strings.Contains(out, "slurm.conf:4: ignored: PreemptType=preempt/qos — there is one QOS") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestBadOptions: what is wrong with an option is said as everywhere else, with two hyphens and what was expected.
func TestBadOptions(t *testing.T) {
	for want, args := range map[string][]string{
		"unknown option --node; see `sluice up --help`":                                  {"up", "--node", "2"},
		"option --dir needs an argument; see `sluice up --help`":                         {"up", "--dir"},
		"--nodes=two: expected a whole number; see `sluice up --help`":                   {"up", "--nodes=two"},
		"--detach=perhaps: expected true or false; see `sluice up --help`":               {"up", "--detach=perhaps"},
		"--timeout=2: expected a time such as 30s or 2m; see `sluice up --help`":         {"up", "--timeout", "2"},
		"--timeout=2 minutes: expected a time such as 30s or 2m; see `sluice up --help`": {"up", "--timeout=2 minutes"},
		"--nodes=99999999999999999999: expected a whole number; see `sluice up --help`":  {"up", "--nodes=99999999999999999999"},
	} {
		if _, err := sluice(t, args...); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", args, err, want)
		}
	}
}

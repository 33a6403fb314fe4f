package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/internal/test/daemontest"
)

// TestConfCheckAndController: `sluice conf check` finds a fault if and only if the controller does not start, with the configurations of
// the tests and with faults of each kind.
func TestConfCheckAndController(t *testing.T) {
	t.Parallel()
	configurations, err := filepath.Glob(filepath.Join(root, "conf/testdata/*/slurm.conf"))
	sites, err2 := filepath.Glob(filepath.Join(root, "conf/testdata/ansible/*/slurm.conf"))
	if err != nil || err2 != nil || len(configurations) < 4 || len(sites) < 4 {
		t.Fatalf("the corpus is not there: %v, %v", configurations, sites)
	}
	for _, path := range append(configurations, sites...) {
		name, _ := filepath.Rel(root, filepath.Dir(path))
		t.Run(name, func(t *testing.T) { agree(t, path, true) })
	}
	const good = "ClusterName=c\nSlurmctldHost=localhost\nNodeName=n[1-2] CPUs=2\nPartitionName=p Nodes=ALL Default=YES\n"
	const lua, functions = "JobSubmitPlugins=lua\n", "function slurm_job_submit() end\nfunction slurm_job_modify() end\n"
	for name, c := range map[string]struct {
		conf, script string
		starts       bool
	}{
		"nothing wrong":      {conf: good, starts: true},
		"no nodes":           {conf: "ClusterName=c\nSlurmctldHost=localhost\nPartitionName=p Nodes=ALL\n"},
		"unknown key":        {conf: good + "SlurmctldPrt=1\n"},
		"unknown node":       {conf: good + "PartitionName=q Nodes=n3\n"},
		"bad number":         {conf: good + "KillWait=soon\n"},
		"the same port":      {conf: good + "SlurmctldPort=7000\nSlurmdPort=7000\n"},
		"unknown plugin":     {conf: good + "SelectType=select/none\n"},
		"keys in vain":       {conf: good + "AuthType=auth/munge\nPreemptType=preempt/qos\nPreemptMode=REQUEUE\n", starts: true},
		"programs not there": {conf: good + "Prolog=/nowhere/p\nPrologSlurmctld=/nowhere/p\nMailProg=/nowhere/m\n", starts: true},
		"group not there":    {conf: good + "PartitionName=q Nodes=ALL AllowGroups=nosuchgroup\n", starts: true},
		"no script":          {conf: good + lua},
		"empty script":       {conf: good + lua, script: "\n"},
		"syntax error":       {conf: good + lua, script: functions + "function (\n"},
		"script that fails":  {conf: good + lua, script: functions + "error('not here')\n"},
		"script that exits":  {conf: good + lua, script: functions + "os.exit(3)\n"},
		"good script":        {conf: good + lua, script: functions, starts: true},
		"script not used":    {conf: good, script: "function (\n", starts: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "slurm.conf")
			if err := os.WriteFile(path, []byte(c.conf), 0o644); err != nil {
				t.Fatal(err)
			}
			if c.script != "" {
				if err := os.WriteFile(filepath.Join(dir, "job_submit.lua"), []byte(c.script), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			agree(t, path, c.starts)
		})
	}
}

// agree has both look at a configuration.
func agree(t *testing.T, path string, starts bool) {
	t.Helper()
	said, err := exec.Command(filepath.Join(bin, "sluice"), "conf", "check", path).CombinedOutput()
	if passes := err == nil; passes != starts {
		t.Errorf("conf check passes: %v, want %v\n%s", passes, starts, said)
	}
	dir := t.TempDir()
	d := daemontest.Launch(t, dir, "ctld", syscall.SysProcAttr{}, os.Environ(), filepath.Join(bin, "sluice-ctld"),
		"--conf", absolute(t, path), "--state", filepath.Join(dir, "state"),
		"--socket", filepath.Join(dir, "ctld.sock"), "--listen", "127.0.0.1:0", "--metrics", "none",
		"--pid-file", "none", "--log", filepath.Join(dir, "log"))
	const started = "controller started"
	log := func() string {
		text, _ := os.ReadFile(filepath.Join(dir, "log"))
		return string(text) + d.Text()
	}
	if !daemontest.Poll(time.Minute, func() bool { return d.Ended() || strings.Contains(log(), started) }) {
		t.Error("the controller neither starts nor ends")
	}
	if does := strings.Contains(log(), started); does != starts {
		t.Errorf("the controller starts: %v, want %v; conf check says\n%s\n%s", does, starts, said, log())
	}
	_ = d.Cmd.Process.Signal(syscall.SIGTERM)
	if !d.Wait(time.Minute) {
		_ = d.Cmd.Process.Kill()
		t.Errorf("the controller does not end\n%s", log())
	}
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}

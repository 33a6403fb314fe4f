package conf

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestAnsibleRoles: what the roles of DeepOps and galaxyproject.slurm write is accepted, and does what it did.
func TestAnsibleRoles(t *testing.T) {
	for dir, want := range map[string]struct {
		nodes, cpus     int
		controller      string
		cores, ram, dev bool
		ignored         string // among what is named, in their order
	}{
		"deepops": {2, 256, "mgmt01", true, true, true, "AuthType PluginDir " +
			"SelectTypeParameters=CR_CORE_DEFAULT_DIST_BLOCK,CR_ONE_TASK_PER_CORE FastSchedule AccountingStorageHost cgroup.conf " +
			"CgroupAutomount cgroup.conf CgroupReleaseAgentDir"},
		"deepops-old": {2, 256, "mgmt01", true, true, true,
			"DebugFlags=CPU_Bind,gres cgroup.conf AllowedDevicesFile cgroup.conf TaskAffinity"},
		"galaxyproject": {10, 72, "slurmctl", true, true, false, "CryptoType TaskPluginParam=Sched " +
			"cgroup.conf CgroupMountpoint cgroup.conf TaskAffinity"},
		"galaxyproject-minimal": {1, 1, "localhost", true, true, true, "AuthType ProctrackType"},
	} {
		c, err := Load(filepath.Join("testdata/ansible", dir, "slurm.conf"), Options{})
		if err != nil {
			t.Errorf("%s: %v", dir, err)
			continue
		}
		if len(c.Warnings) > 0 {
			t.Errorf("%s: warnings %v", dir, c.Warnings)
		}
		if len(c.Nodes) != want.nodes || c.Nodes[0].CPUs != want.cpus || c.SlurmctldHosts[0].Name != want.controller {
			t.Errorf("%s: %d nodes with %d CPUs, controller %v; want %+v", dir, len(c.Nodes), c.Nodes[0].CPUs, c.SlurmctldHosts, want)
		}
		if g := c.Cgroup; g.ConstrainCores != want.cores || g.ConstrainRAMSpace != want.ram || g.ConstrainDevices != want.dev {
			t.Errorf("%s: cores %v, RAM %v, devices %v are constrained; want %+v", dir, g.ConstrainCores, g.ConstrainRAMSpace,
				g.ConstrainDevices, want)
		}
		var ignored []string
		for _, i := range c.Ignored {
			ignored = append(ignored, i.Key)
		}
		rest := strings.Join(ignored, " ") + " "
		for word := range strings.FieldsSeq(want.ignored) {
			_, after, found := strings.Cut(rest, word+" ")
			if !found {
				t.Errorf("%s: %s is not named in its place among %v", dir, word, ignored)
				break
			}
			rest = after
		}
	}
	c, err := Load("testdata/ansible/deepops/slurm.conf", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if g := c.GresOf("gpu01"); len(g) != 8 || len(g[0].Cores) != 128 || strings.Contains(c.PropagatedLimits(), "MEMLOCK") ||
		c.RebootProgram != "/bin/systemctl reboot" {
		t.Errorf("gres of gpu01: %+v, limits %s, RebootProgram %q", g, c.PropagatedLimits(), c.RebootProgram)
	}
}

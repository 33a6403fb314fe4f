package conf

import "testing"

// TestAsSlurmReads: spellings that Slurm takes although its manual does not have them.
func TestAsSlurmReads(t *testing.T) {
	c := mustLoad(t, head+"NodeName=n[1-2] NodeAddr=h Port=32021-32022\nPartitionName=DEFAULT DefMemPerCPU=100 MaxMemPerNode=900\n"+
		"PartitionName=p Nodes=ALL DefMemPerNode=500 Default=YES\nPartitionName=q Nodes=ALL MaxMemPerCPU=50\n"+
		"SchedulerParameters=max_switch_wait=24:00:00\n")
	if a, b := c.Nodes[0].Port, c.Nodes[1].Port; a != 32021 || b != 32022 {
		t.Errorf("ports %d and %d", a, b)
	}
	if p := c.Partitions[0]; p.DefMemPerCPUMiB != 0 || p.DefMemPerNodeMiB != 500 || p.MaxMemPerNodeMiB != 900 {
		t.Errorf("p: %+v", p)
	}
	if q := c.Partitions[1]; q.DefMemPerCPUMiB != 100 || q.MaxMemPerNodeMiB != 0 || q.MaxMemPerCPUMiB != 50 {
		t.Errorf("q: %+v", q)
	}
	want := "/etc/slurm.conf:5: partition p: its own line overrides DefMemPerCPU of PartitionName=DEFAULT\n" +
		"/etc/slurm.conf:6: partition q: its own line overrides MaxMemPerNode of PartitionName=DEFAULT"
	if got := c.Warnings.Error(); got != want {
		t.Errorf("warnings:\n%s\nwant\n%s", got, want)
	}
	if got := c.SchedulerParameters.Int("max_switch_wait", 0); got != 24*3600 {
		t.Errorf("max_switch_wait is %d s", got)
	}
}

package acct

import (
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
)

func benchRecord() *msg.JobRecord {
	return &msg.JobRecord{Id: 100001, State: msg.JobState_JOB_COMPLETED, Partition: "debug", SubmitNs: 1800000000e9,
		EligibleNs: 1800000000e9, StartNs: 1800000001e9, EndNs: 1800003601e9,
		BatchHost: "n1", NodeList: "n1", NumCpus: 8, BatchVerdict: "exited", Alloc: []*msg.NodeAlloc{{Node: "n1", Cpus: 8, MemMib: 65536}},
		AllocTres: "cpu=8,mem=64G,node=1,billing=8",
		ReqTres:   "cpu=8,mem=64G,node=1,billing=8", Spec: &msg.JobSpec{Name: "train", User: "alice", Account: "lab"},
		Usage: []*msg.StepUsage{{Node: "n1", CpuUsecUser: 7e9, MaxRssKib: 9000000, MaxVmKib: 20000000, ReadBytes: 1e10, WriteBytes: 1e9}}}
}

func BenchmarkRows(b *testing.B) {
	for _, spec := range []string{DefaultFormat, "jobid,user,state,elapsedraw,alloctres", "all"} {
		b.Run(spec[:3], func(b *testing.B) {
			columns, err := Parse(spec)
			if err != nil {
				b.Fatal(err)
			}
			t, c, j := &Table{Columns: columns}, &Context{Context: format.Context{Now: time.Unix(1800009000, 0)}}, benchRecord()
			var out []byte
			b.ReportAllocs()
			for b.Loop() {
				out = out[:0]
				for _, r := range Rows(j, c, true) {
					out = t.AppendRow(out, c, r)
				}
			}
		})
	}
}

// Every field has a text for every kind of row, and a record without anything breaks none of them.
func TestEveryField(t *testing.T) {
	columns, err := Parse("all")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range Names() {
		c, err := Parse(name)
		if err != nil || len(c) != 1 || c[0].Name != name {
			t.Fatalf("%s is found as %v, %v", name, c, err)
		}
		if c[0].Newer {
			columns = append(columns, c[0])
		}
	}
	table := &Table{Columns: columns, Parsable: true, Separator: "\x1f"}
	c := &Context{Context: format.Context{Now: time.Unix(1800009000, 0)}, Extern: true}
	for _, j := range []*msg.JobRecord{benchRecord(), {Spec: &msg.JobSpec{}}, {},
		{StartNs: 1, Alloc: []*msg.NodeAlloc{{}}, Usage: []*msg.StepUsage{{}}}} {
		for _, r := range Rows(j, c, true) {
			table.AppendRow(nil, c, r)
		}
	}
	if rows := Rows(benchRecord(), c, true); len(rows) != 3 || rows[2].Step != "extern" || rows[2].State() != "COMPLETED" {
		t.Errorf("rows with an extern step: %v", rows)
	}
}

// States and exit codes of a job and its batch script, as a 22.05 shows them.
func TestStates(t *testing.T) {
	for _, tt := range []struct {
		name             string
		state            msg.JobState
		flags            uint32
		status, batch    uint32
		verdict          string
		job, code        string
		step, stepStatus string
	}{
		{"completed", msg.JobState_JOB_COMPLETED, 0, 0, 0, "exited", "COMPLETED", "0:0", "COMPLETED", "0:0"},
		{"failed", msg.JobState_JOB_FAILED, 0, 3 << 8, 3 << 8, "exited", "FAILED", "3:0", "FAILED", "3:0"},
		{"killed", msg.JobState_JOB_FAILED, 0, 9, 9, "signaled", "FAILED", "0:9", "CANCELLED", "0:9"},
		{"cancelled", msg.JobState_JOB_CANCELLED, 0, 15, 15, "cancelled", "CANCELLED by 0", "0:0", "CANCELLED", "0:15"},
		{"timeout", msg.JobState_JOB_TIMEOUT, 0, 0, 15, "timeout", "TIMEOUT", "0:0", "CANCELLED", "0:15"},
		// A script that traps SIGTERM ends as it says, one that does not listen by SIGKILL: trap 'exit 3' TERM; trap 'exit 0'; trap ''.
		{"trap exit 3", msg.JobState_JOB_CANCELLED, 0, 15, 3 << 8, "cancelled", "CANCELLED by 0", "0:0", "FAILED", "3:0"},
		{"trap exit 0", msg.JobState_JOB_TIMEOUT, 0, 0, 0, "timeout", "TIMEOUT", "0:0", "COMPLETED", "0:0"},
		{"deaf", msg.JobState_JOB_CANCELLED, 0, 15, 9, "cancelled", "CANCELLED by 0", "0:0", "CANCELLED", "0:9"},
		{"never ran", msg.JobState_JOB_CANCELLED, 0, 15, 0, "", "CANCELLED by 0", "0:0", "CANCELLED", "0:15"},
		{"out of memory", msg.JobState_JOB_OUT_OF_MEMORY, 0, 125, 9, "oom", "OUT_OF_MEMORY", "0:125", "OUT_OF_MEMORY", "0:125"},
		{"requeued", msg.JobState_JOB_RUNNING, msg.JobRequeued, 15, 15, "cancelled", "REQUEUED", "0:0", "CANCELLED", "0:15"},
		{"running", msg.JobState_JOB_RUNNING, 0, 0, 0, "", "RUNNING", "0:0", "RUNNING", "0:0"},
		{"node failure", msg.JobState_JOB_NODE_FAIL, 0, 0, 0, "lost", "NODE_FAIL", "0:0", "CANCELLED", "0:0"},
		{"preempted", msg.JobState_JOB_PREEMPTED, 0, 15, 15, "cancelled", "PREEMPTED", "0:0", "CANCELLED", "0:15"},
	} {
		j := benchRecord()
		j.State, j.StateFlags, j.ExitStatus, j.BatchStatus, j.BatchVerdict = tt.state, tt.flags, tt.status, tt.batch, tt.verdict
		job, step := Row{JobRecord: j}, Row{JobRecord: j, Step: "batch"}
		if job.State() != tt.job || job.exitCode() != tt.code || step.State() != tt.step || step.exitCode() != tt.stepStatus {
			t.Errorf("%s: %s %s, step %s %s", tt.name, job.State(), job.exitCode(), step.State(), step.exitCode())
		}
	}
}

func TestUnits(t *testing.T) {
	for _, tt := range []struct {
		bytes         uint64
		unit          byte
		plain         bool
		size, traffic string
	}{
		{6 << 20, 0, false, "6M", "6M"}, {8284 << 10, 0, false, "8284K", "8.09M"}, {1307042, 0, false, "1307042", "1.25M"},
		{0, 0, false, "0", "0"},
		{3416064, 'K', false, "3336K", "3336K"}, {5644288, 'G', false, "0.01G", "0.01G"}, {3416064, 0, true, "3416064", "3.26M"},
		{5 << 30, 0, false, "5G", "5G"},
	} {
		c := &Context{Units: tt.unit}
		c.NoConvert = tt.plain
		if got := c.Size(tt.bytes); got != tt.size {
			t.Errorf("Size(%d) in %q: %s, want %s", tt.bytes, tt.unit, got, tt.size)
		}
		if got := c.Traffic(tt.bytes); got != tt.traffic {
			t.Errorf("Traffic(%d) in %q: %s, want %s", tt.bytes, tt.unit, got, tt.traffic)
		}
	}
	for usec, want := range map[uint64]string{0: "00:00:00", 49000: "00:00.049", 61500000: "01:01.500", 3600000000: "01:00:00",
		90061500000: "1-01:01:01"} {
		if got := cpuTime(usec); got != want {
			t.Errorf("%d µs: %s, want %s", usec, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{DefaultFormat, "jobid%20,,x", "all%-3", "%", "%%", "a%99999999999999999999", "é%3"} {
		f.Add(s)
	}
	c, rows := &Context{}, Rows(benchRecord(), &Context{}, true)
	f.Fuzz(func(_ *testing.T, s string) {
		if len(s) > 100 {
			return
		}
		columns, err := Parse(s)
		if err != nil {
			return
		}
		(&Table{Columns: columns}).AppendRow((&Table{Columns: columns}).AppendHeader(nil), c, rows[0])
	})
}

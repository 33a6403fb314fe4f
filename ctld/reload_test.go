package ctld

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/reactor"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestReconfigureUnderJobs: a change that a running job could not survive is refused with the name of the job, and made on request.
// docs/differences.md describes what Slurm 22.05 does.
func TestReconfigureUnderJobs(t *testing.T) {
	const nodes, parts = "NodeName=n1 CPUs=4 RealMemory=1000\nNodeName=n2 CPUs=4 RealMemory=1000\n",
		"PartitionName=debug Nodes=ALL Default=YES\nPartitionName=long Nodes=ALL\n"
	const memory = "SelectTypeParameters=CR_Core_Memory\nDefMemPerNode=800\n"
	for _, c := range []struct {
		what, conf, refused string
		left                pb.JobState // with --force
	}{
		{"its node removed", memory + "NodeName=n2 CPUs=4 RealMemory=1000\n" + parts, "node n1 would be removed: job 1",
			pb.JobState_JOB_PENDING},
		{"fewer CPUs", memory + strings.Replace(nodes, "CPUs=4", "Sockets=1 CoresPerSocket=2", 1) + parts,
			"node n1 would have 2 CPUs, of which 4 are allocated: job 1", pb.JobState_JOB_RUNNING},
		{"other cores", memory + strings.Replace(nodes, "CPUs=4", "Sockets=2 CoresPerSocket=2", 1) + parts,
			"node n1 would have other cores (Sockets:Cores:Threads 2:2:1, now 4:1:1)", pb.JobState_JOB_RUNNING},
		{"less memory", memory + strings.Replace(nodes, "1000", "500", 1) + parts,
			"node n1 would have 500 MiB of memory for jobs, of which 800 are allocated: job 1", pb.JobState_JOB_RUNNING},
		{"its partition removed", memory + nodes + "PartitionName=long Nodes=ALL Default=YES\n", "partition debug would be removed: job 1",
			pb.JobState_JOB_RUNNING},
		{"another node removed", memory + "NodeName=n1 CPUs=4 RealMemory=1000\n" + parts, "", pb.JobState_JOB_RUNNING},
		{"its node out of its partition", memory + nodes + "PartitionName=debug Nodes=n2 Default=YES\nPartitionName=long Nodes=ALL\n", "",
			pb.JobState_JOB_RUNNING},
		{"more of everything", memory + strings.Replace(nodes, "1000", "2000", 1) + parts, "", pb.JobState_JOB_RUNNING},
	} {
		b := newConfBench(t, memory+nodes+parts)
		for _, n := range []string{"n1", "n2"} {
			b.turn(reactor.NodeHello{Hello: &pb.NodeHello{Node: n, BootId: "b",
				Hardware: &pb.Hardware{Cpus: 4, Sockets: 1, Cores: 4, Threads: 1, RealMemoryMib: 2000}}})
		}
		b.submitTo("n1")
		b.turn(*b.plan())
		b.write(c.conf)
		dry, changes, err := b.reload(true, false)
		if err != nil || len(changes) == 0 {
			t.Fatalf("%s: a dry run says %q, %v", c.what, changes, err)
		}
		real, _, err := b.reload(false, false)
		if err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		before := b.loop.View()
		for _, cmd := range []reactor.Command{dry, real} {
			p, _ := b.turn(cmd).(*pb.Problem)
			if (p != nil) != (c.refused != "") ||
				p != nil && (pb.Code(p.Code) != pb.CodeNodesBusy || !strings.Contains(p.Detail, c.refused)) {
				t.Errorf("%s: %v, want %q", c.what, p, c.refused)
			}
			if (cmd == dry || p != nil) && b.loop.View().Settings != before.Settings {
				t.Errorf("%s: what is refused, or only tried, is in force", c.what)
			}
		}
		if c.what == "fewer CPUs" || c.what == "other cores" {
			forced, _, _ := b.reload(false, true)
			if p, refused := b.turn(forced).(*pb.Problem); !refused || !strings.Contains(p.Detail, c.refused) {
				t.Errorf("%s: forced: %v", c.what, p)
			}
			continue
		}
		forced, _, err := b.reload(false, true)
		if err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		if p, refused := b.turn(forced).(*pb.Problem); refused {
			t.Errorf("%s: refused with --force: %v", c.what, p)
		}
		j := b.loop.View().Jobs.Get(1)
		if j.State != c.left {
			t.Errorf("%s: the job is %v, want %v", c.what, j.State, c.left)
		}
		if err := b.loop.View().Check(); err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

// TestReconfigureChecksPrograms: a program that was configured before and is now missing does not prevent a reconfiguration; a newly
// configured one must exist.
func TestReconfigureChecksPrograms(t *testing.T) {
	const rest = "NodeName=n1 CPUs=4\nPartitionName=p Nodes=ALL\n"
	b := newConfBench(t, "EpilogSlurmctld=/nowhere/epilog\n"+rest)
	dir := filepath.Dir(b.opts.Conf)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	program := func(name string, mode os.FileMode) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	program("good", 0o755)
	program("plain", 0o644)
	program("open", 0o777)
	for _, c := range []struct{ conf, want string }{
		{"EpilogSlurmctld=/nowhere/epilog\n", ""},
		{"PrologSlurmctld=" + dir + "/good\n", ""},
		{"PrologSlurmctld=" + dir + "/nothing\n", "no such file"},
		{"PrologSlurmctld=" + dir + "/plain\n", "not executable"},
		{"PrologSlurmctld=" + dir + "/open\n", "writable by everybody"},
		{"Prolog=" + dir + "/nothing\n", ""}, // the hosts' own
		{"SlurmctldParameters=enable_configless\nProlog=" + dir + "/nothing\n", "hosts without configuration files would not get Prolog="},
		{"SlurmctldParameters=enable_configless\nProlog=" + dir + "/open\n", "writable by everybody"},
		{"SlurmctldParameters=enable_configless\nProlog=" + dir + "/good\n", ""},
		{"SlurmctldParameters=enable_configless\nProlog=/nowhere/prolog\n", ""},
	} {
		b.write(c.conf + rest)
		_, _, err := b.reload(true, false)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.conf, err, c.want)
		}
		if _, _, err := b.reload(true, true); err != nil {
			t.Errorf("%s: refused with --force: %v", c.conf, err)
		}
	}
}

// submitTo submits a job for all of a node.
func (b *confBench) submitTo(node string) {
	b.t.Helper()
	b.submitSpec(&pb.JobSpec{Name: "j", Uid: 1000, User: "u", NumTasks: 4, ReqNodes: node})
}

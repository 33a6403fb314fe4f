package bundle

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/noded/hw"
	"github.com/sluice-hpc/sluice/noded/step/folder"
	"github.com/sluice-hpc/sluice/noded/taskenv"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
)

var quiet = slog.New(slog.DiscardHandler)

func testBundler() *Builder {
	return &Builder{Daemon: taskenv.Daemon{Node: "n1"}, Hostname: "host", Topology: hw.Build(1, 4, 2), Log: quiet,
		Hard: func(int) uint64 { return 1000 }}
}

func testLaunch() *pb.LaunchSpec {
	return &pb.LaunchSpec{
		Key: &pb.StepKey{JobId: 12, Attempt: 2, Epoch: 9, Step: pb.BatchStep}, Node: "n1", NodeList: "n1", Batch: true, Partition: "debug",
		Alloc: []*pb.NodeAlloc{{Node: "n1", Cpus: 2, CpuIds: "0-1", MemMib: 200, Tasks: 1}}, LimitS: 99,
		Spec: &pb.JobSpec{Name: "train", Uid: 5, Gid: 6, Groups: []uint32{6, 7}, User: "u", WorkDir: "/home/u", Args: []string{"a", "b c"},
			Umask: 0o27},
	}
}

func TestBundleOfABatchJob(t *testing.T) {
	b := testBundler().Build(testLaunch(), &pb.NodeSettings{KillWaitS: 30, UnkillableTimeoutS: 60, MaxPids: 500, TaskProlog: "/t"})
	if !slices.ContainsFunc(b.Env, func(s string) bool { return s == "SLURM_JOB_ID=12" }) {
		t.Errorf("%q", b.Env)
	}
	b.Env = nil
	want := &pb.Bundle{
		Key: testLaunch().Key, Uid: 5, Gid: 6, Groups: []uint32{6, 7}, Umask: 0o27, Dir: "/home/u", LimitS: 99, KillWaitS: 30,
		UnkillableTimeoutS: 60, Cpus: 2, JobName: "train", Partition: "debug", Cgroup: "job_12.2", Limits: &pb.Limits{Pids: 500},
		Argv: []string{scriptName, "a", "b c"}, StdIn: &pb.StdFile{Path: "/dev/null"}, StdOut: &pb.StdFile{Path: "/home/u/slurm-12.out"},
		StdErr: &pb.StdFile{}, TaskProlog: []string{"/t"},
		Job: &pb.StepJob{Uid: 5, Gid: 6, User: "u", Name: "train", Partition: "debug", NodeList: "n1", NumCpus: 2},
	}
	if !proto.Equal(b, want) {
		t.Errorf("%s\nwant\n%s", prototext.Format(b), prototext.Format(want))
	}
}

func TestBundleHoldsOnOtherNodes(t *testing.T) {
	l := testLaunch()
	l.Batch, l.Key.Step = false, pb.ExternStep
	b := testBundler().Build(l, &pb.NodeSettings{ConstrainRam: true})
	if !b.HoldOnly || b.Argv != nil || b.Env != nil || b.Limits.MemoryMib != 200 || b.Cgroup != "job_12.2" {
		t.Errorf("%v", b)
	}
}

func TestLimits(t *testing.T) {
	all := &pb.NodeSettings{ConstrainCores: true, ConstrainRam: true, ConstrainSwap: true, Node: &pb.NodeRecord{Cpus: 8}}
	for _, c := range []struct {
		name   string
		change func(*pb.LaunchSpec, *pb.NodeSettings)
		want   *pb.Limits
	}{
		{"all", func(*pb.LaunchSpec, *pb.NodeSettings) {}, &pb.Limits{CpusetCpus: "0,4", MemoryMib: 200, MemorySwapMib: 200}},
		{"none", func(_ *pb.LaunchSpec, s *pb.NodeSettings) { proto.Reset(s) }, &pb.Limits{}},
		{"CPUs are cores", func(_ *pb.LaunchSpec, s *pb.NodeSettings) { s.Node.Cpus = 4 },
			&pb.Limits{CpusetCpus: "0-1,4-5", MemoryMib: 200, MemorySwapMib: 200}},
		{"more configured than there are", func(_ *pb.LaunchSpec, s *pb.NodeSettings) { s.Node.Cpus = 64 },
			&pb.Limits{MemoryMib: 200, MemorySwapMib: 200}},
		{"an allocation that makes no sense", func(l *pb.LaunchSpec, _ *pb.NodeSettings) { l.Alloc[0].CpuIds = "7-9" },
			&pb.Limits{MemoryMib: 200, MemorySwapMib: 200}},
		{"allowed percent", func(_ *pb.LaunchSpec, s *pb.NodeSettings) { s.AllowedRamPercent, s.ConstrainSwap = 150, false },
			&pb.Limits{CpusetCpus: "0,4", MemoryMib: 300}},
		{"swap", func(_ *pb.LaunchSpec, s *pb.NodeSettings) { s.AllowedRamPercent, s.AllowedSwapPercent = 50, 25 },
			&pb.Limits{CpusetCpus: "0,4", MemoryMib: 100, MemorySwapMib: 150}},
		{"bounds of the node", func(_ *pb.LaunchSpec, s *pb.NodeSettings) {
			s.Node.RealMemoryMib, s.MaxRamPercent, s.MaxSwapPercent, s.AllowedSwapPercent = 400, 25, 40, 100
		}, &pb.Limits{CpusetCpus: "0,4", MemoryMib: 100, MemorySwapMib: 160}},
		{"at least", func(_ *pb.LaunchSpec, s *pb.NodeSettings) { s.AllowedRamPercent, s.MinRamMib = 10, 64 },
			&pb.Limits{CpusetCpus: "0,4", MemoryMib: 64, MemorySwapMib: 64}},
		{"no memory asked", func(l *pb.LaunchSpec, _ *pb.NodeSettings) { l.Alloc[0].MemMib = 0 }, &pb.Limits{CpusetCpus: "0,4"}},
		{"hardly any", func(l *pb.LaunchSpec, s *pb.NodeSettings) { l.Alloc[0].MemMib, s.ConstrainSwap = 1, false },
			&pb.Limits{CpusetCpus: "0,4", MemoryMib: 30}},
	} {
		l, s := testLaunch(), proto.Clone(all).(*pb.NodeSettings)
		c.change(l, s)
		if got := testBundler().limits(l, s); !proto.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestFiles(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*pb.JobSpec, *pb.NodeSettings)
		want   string // in, out, err
	}{
		{"defaults", func(*pb.JobSpec, *pb.NodeSettings) {}, "/dev/null /home/u/slurm-12.out -"},
		{"patterns", func(s *pb.JobSpec, _ *pb.NodeSettings) { s.StdIn, s.StdOut, s.StdErr = "i%j", "%x-%u-%N.o", "/e/%j" },
			"/home/u/i12 /home/u/train-u-host.o /e/12"},
		{"append", func(s *pb.JobSpec, _ *pb.NodeSettings) { s.OpenMode = pb.OpenAppend }, "/dev/null +/home/u/slurm-12.out +-"},
		{"JobFileAppend", func(_ *pb.JobSpec, s *pb.NodeSettings) { s.JobFileAppend = true }, "/dev/null +/home/u/slurm-12.out +-"},
		{"truncate against JobFileAppend", func(j *pb.JobSpec, s *pb.NodeSettings) { j.OpenMode, s.JobFileAppend = pb.OpenTruncate, true },
			"/dev/null /home/u/slurm-12.out -"},
		{"nothing", func(s *pb.JobSpec, _ *pb.NodeSettings) { s.StdOut = "none" }, "/dev/null /dev/null -"},
	} {
		l, s := testLaunch(), &pb.NodeSettings{}
		c.change(l.Spec, s)
		in, out, err := testBundler().files(l, s)
		var got []string
		for _, f := range []*pb.StdFile{in, out, err} {
			p := f.Path
			if p == "" {
				p = "-"
			}
			if f.Append {
				p = "+" + p
			}
			got = append(got, p)
		}
		if g := strings.Join(got, " "); g != c.want {
			t.Errorf("%s: %s, want %s", c.name, g, c.want)
		}
	}
}

func TestWarning(t *testing.T) {
	l := testLaunch()
	l.Spec.WarnSignal, l.Spec.WarnBatch = 10, true
	if b := testBundler().Build(l, nil); b.WarnSignal != 10 || b.WarnSeconds != 60 || !b.WarnBatch {
		t.Errorf("%v", b)
	}
	l.Spec.WarnSeconds = 5
	if b := testBundler().Build(l, nil); b.WarnSeconds != 5 {
		t.Errorf("%v", b)
	}
}

func TestRlimits(t *testing.T) {
	asked := []*pb.Rlimit{{Resource: unix.RLIMIT_NOFILE, Soft: 500, Hard: 600},
		{Resource: unix.RLIMIT_CORE, Soft: unix.RLIM_INFINITY, Hard: unix.RLIM_INFINITY}, {Resource: unix.RLIMIT_NICE, Soft: 1}}
	for list, want := range map[string]int{"": 2, "ALL": 2, "NONE": 0, "nofile": 1, "CORE,RLIMIT_NOFILE": 2, "STACK": 0} {
		if got := testBundler().rlimits(asked, list); len(got) != want {
			t.Errorf("%q: %v", list, got)
		}
	}
	given := []*pb.Rlimit{{Resource: unix.RLIMIT_NOFILE, Soft: 500, Asked: true}, {Resource: unix.RLIMIT_CORE, Soft: 1},
		{Resource: unix.RLIMIT_NICE, Asked: true}}
	if got := testBundler().rlimits(given, "NONE"); len(got) != 1 || got[0].Resource != unix.RLIMIT_NOFILE || got[0].Soft != 500 {
		t.Errorf("asked for by --propagate: %v", got)
	}
	got := testBundler().rlimits(asked, "ALL")
	if got[0].Soft != 500 || got[0].Hard != 1000 || got[1].Soft != 1000 || got[1].Hard != 1000 {
		t.Errorf("%v: nobody gets more than the daemon may give", got)
	}
}

func TestStepsHaveCgroupsOfTheirOwn(t *testing.T) {
	if got := folder.Group(&pb.StepKey{JobId: 3, Attempt: 1, Step: 4}); got != "job_3.1/step_4" {
		t.Error(got)
	}
}

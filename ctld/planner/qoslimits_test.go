package planner

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/explain"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/record"
	"pgregory.net/rapid"
)

// TestPartitionQOS: which of several jobs start where the partition "other" has the QOS "part". What starts, and the reasons of the others,
// are those of a Slurm 22.05.
func TestPartitionQOS(t *testing.T) {
	const user, over = "QOSMaxJobsPerUserLimit", "OverPartQOS"
	for _, tt := range []struct {
		limits string // with commas between them
		flags  string // of the QOS high
		jobs   string // QOS@partitions*CPUs of each
		want   string
	}{
		{"qos part MaxJobsPerUser 3,qos high MaxJobsPerUser 1", "", "high@other*1 high@other*1 high@other*1 high@other*1", "R R R " + user},
		{"qos part MaxJobsPerUser 3,qos high MaxJobsPerUser 1", over, "high@other*1 high@other*1", "R " + user},
		{"qos part MaxJobsPerUser 1", over, "high@other*1 high@other*1 high@debug*1", "R " + user + " R"},
		{"qos part GrpTRES cpu 3,qos high GrpTRES cpu 1,qos high GrpTRES mem 250", "", "high@other*1 high@other*1 high@other*1",
			"R R QOSGrpMemLimit"},
		{"qos part GrpTRES cpu 1,qos high GrpTRES cpu 3", over, "normal@other*2 high@other*2 high@other*2",
			"QOSGrpCpuLimit R QOSGrpCpuLimit"},
		{"qos part GrpTRES cpu 4", "", "part@debug*2 part@other*2 normal@other*1", "R R QOSGrpCpuLimit"}, // no job counts twice
		{"qos part GrpTRES cpu 2", "", "normal@other*2 normal@other,debug*2 normal@debug,other*2 normal@other*1", "R R R QOSGrpCpuLimit"},
		{"qos part MaxTRESPerUser cpu 1,qos high MaxTRESPerUser cpu 2", "", "high@other*1 high@other*1 high@debug*1 normal@other*1",
			"R QOSMaxCpuPerUserLimit R QOSMaxCpuPerUserLimit"},
		{"qos part MaxTRESPerUser cpu 1,qos high MaxTRESPerUser cpu 2", over, "high@other*1 high@other*1 high@debug*1 normal@other*1",
			"R R QOSMaxCpuPerUserLimit QOSMaxCpuPerUserLimit"},
		{"qos part GrpTRES cpu 3,account lab GrpTRES cpu 1", "", "normal@other*2 normal@other*2 normal@debug*2",
			"R QOSGrpCpuLimit AssocGrpCpuLimit"},
		{"qos part MaxJobsPerAccount 1", "", "normal@other*1 high@other*1", "R MaxJobsPerAccount"},
		{"qos part MaxTRESMinsPerJob cpu 10,qos high MaxTRESMinsPerJob cpu 40", "", "high@other*2 high@other*1",
			"QOSMaxCpuMinutesPerJobLimit R"},
		// The factor of the job's own QOS counts, that of the partition's does not.
		{"qos part UsageFactor 2000000,qos part GrpTRESRunMins cpu 25,qos high UsageFactor 500000", "",
			"normal@other*1 high@other*1 normal@other*1 high@other*2 normal@debug*1", "R R R QOSGrpCPURunMinutesLimit R"},
		{"qos part GrpSubmitJobs 1", "", "normal@other*1 normal@debug,other*1 normal@debug*1", "R QOSGrpSubmitJobsLimit R"},
		{"qos part MaxTRESPerJob cpu 2", "DenyOnLimit", "normal@other*3 high@debug,other*3 high@other*2 high@debug*3",
			"QOSMaxCpuPerJobLimit QOSMaxCpuPerJobLimit R R"},
	} {
		b := limitBench(t)
		b.change(&pb.ChangePolicyRequest{Entity: pb.PolicyEntity_POLICY_QOS, Names: []string{"part"}})
		b.change(&pb.ChangePolicyRequest{Verb: pb.PolicyVerb_POLICY_MODIFY, Entity: pb.PolicyEntity_POLICY_QOS, Names: []string{"high"},
			Set: []*pb.PolicySetting{{Name: "Flags", Words: strings.Fields(tt.flags)}}})
		b.limits(strings.Split(tt.limits, ",")...)
		b.partitionQOS("PART")
		var refused []string
		for i, job := range strings.Fields(tt.jobs) {
			qos, where, _ := strings.Cut(job, "@")
			where, cpus, _ := strings.Cut(where, "*")
			n, _ := strconv.ParseUint(cpus, 10, 32)
			spec := &pb.JobSpec{Partition: where, NumTasks: uint32(n), TimeLimitS: 600}
			if why := b.send("u1", "lab", qos, spec); why != "" {
				refused = append(refused, fmt.Sprint(i, why))
			}
		}
		got := b.reasons()
		for _, r := range refused {
			got = slices.Insert(got, int(r[0]-'0'), r[1:])
		}
		if got := strings.Join(got, " "); got != tt.want {
			t.Errorf("%s %s; %s: %s, want %s", tt.limits, tt.flags, tt.jobs, got, tt.want)
		}
	}
}

// TestNoPartitionLimitIsExceeded: for any limits of QOSes and any choice of the partition's QOS, no job starts that breaks one, and none
// waits that could start in one of its partitions.
func TestNoPartitionLimitIsExceeded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := limitBench(t)
		b.change(&pb.ChangePolicyRequest{Entity: pb.PolicyEntity_POLICY_QOS, Names: []string{"part"}})
		b.change(&pb.ChangePolicyRequest{Verb: pb.PolicyVerb_POLICY_MODIFY, Entity: pb.PolicyEntity_POLICY_QOS, Names: []string{"high"},
			Set: []*pb.PolicySetting{{Name: "Flags", Words: rapid.SampledFrom([][]string{nil, {"OverPartQOS"}}).Draw(t, "flags")}}})
		set := func() {
			b.limits(fmt.Sprint("qos ", rapid.SampledFrom([]string{"part", "high", "normal"}).Draw(t, "of"), " ",
				rapid.SampledFrom([]string{"GrpJobs", "GrpTRES cpu", "MaxJobsPerUser"}).Draw(t, "limit"), " ",
				rapid.IntRange(0, 4).Draw(t, "n")))
		}
		var order []uint32 // in which jobs started
		b.loop.Observe(func(c state.Change) {
			for _, e := range c.Events {
				if s, ok := e.(state.JobStarted); ok {
					order = append(order, s.Job.Id)
				}
			}
		})
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			switch rapid.IntRange(0, 6).Draw(t, "step") {
			case 0:
				if j := b.job(t, state.Live); j != nil {
					b.finish(j)
				}
			case 1, 2:
				set()
			case 3:
				b.partitionQOS(rapid.SampledFrom([]string{"", "part", "high"}).Draw(t, "partition's"))
			default:
				b.send(rapid.SampledFrom([]string{"u1", "u2"}).Draw(t, "u"), "lab",
					rapid.SampledFrom([]string{"normal", "high", "part"}).Draw(t, "qos"),
					&pb.JobSpec{NumTasks: uint32(rapid.IntRange(1, 2).Draw(t, "tasks")), TimeLimitS: 600,
						Partition: rapid.SampledFrom([]string{"debug", "other", "other,debug"}).Draw(t, "partition")})
			}
			order = nil
			b.reasons()
			v, full, used := b.loop.View(), false, uint32(0)
			for i, id := range order {
				if j := v.Jobs.Get(id); breaksQOS(v, j, j.Partition, 0, order[i+1:]) {
					t.Fatalf("job %d in %s, %s runs", j.Id, j.Spec.Qos, j.Partition)
				}
			}
			for j := range v.Jobs.All() {
				full = full || state.Pending(j) && (j.Reason == "Resources" || j.Reason == "Priority")
				if state.Live(j) {
					used += j.NumCpus
				}
			}
			for j := range v.Jobs.All() { // a job may have the reason of one of its partitions, and wait for CPUs in the other
				if full || !state.Pending(j) || used+j.Spec.NumTasks > 3*4 {
					continue
				}
				for p := range strings.SplitSeq(j.Spec.Partition, ",") {
					if !breaksQOS(v, j, p, 1, nil) {
						t.Fatalf("job %d in %s waits for %s and would break nothing in %s", j.Id, j.Spec.Qos, j.Reason, p)
					}
				}
			}
		}
	})
}

// breaksQOS reports whether a job would break a limit of its QOS or of its partition's, counted from nothing by the jobs that run, but for
// those that started later: the test's own reading of them. more is 1 for a job that waits.
func breaksQOS(v *state.View, j *pb.JobRecord, partition string, more uint64, later []uint32) bool {
	of := func(p string) string { return v.Partition(p).GetQos() }
	qoses := []string{of(partition), j.Spec.Qos}
	if slices.Contains(v.Policy().QOS(j.Spec.Qos).Flags, "OverPartQOS") {
		slices.Reverse(qoses)
	}
	said := map[string]bool{}
	for _, name := range qoses {
		q := v.Policy().QOS(name)
		jobs, mine, cpus := more, more, more*uint64(j.Spec.NumTasks)
		for x := range v.Jobs.All() {
			if !state.Live(x) || slices.Contains(later, x.Id) || x.Spec.Qos != name && of(x.Partition) != name {
				continue
			}
			jobs++
			cpus += uint64(x.NumCpus)
			if x.Spec.User == j.Spec.User {
				mine++
			}
		}
		for _, val := range q.GetValues() {
			n := map[string]uint64{"GrpJobs": jobs, "MaxJobsPerUser": mine, "GrpTRES": cpus}[val.Name]
			if !said[val.Name] && n > val.Value {
				return true
			}
		}
		for _, val := range q.GetValues() {
			said[val.Name] = true
		}
	}
	return false
}

// TestMaxTRESPerNode: which jobs start where two CPUs and 500 MiB are allowed for each node, and which are refused with DenyOnLimit. Both,
// and the reasons, are those of a Slurm 22.05: all that a job has is divided by its nodes.
func TestMaxTRESPerNode(t *testing.T) {
	const cpu, mem = "QOSMaxCpuPerNode", "QOSMaxMemoryPerNode"
	of := func(owner string) string { return owner + " MaxTRESPerNode cpu 2," + owner + " MaxTRESPerNode mem 500" }
	for _, tt := range []struct {
		what, limits string
		spec         *pb.JobSpec
		qos, want    string
		refused      bool // with DenyOnLimit
	}{
		{"-N1 -n3", of("qos high"), &pb.JobSpec{MinNodes: 1, MaxNodes: 1, NumTasks: 3}, "high", cpu, true},
		{"-N2 -n3", of("qos high"), &pb.JobSpec{MinNodes: 2, MaxNodes: 2, NumTasks: 3}, "high", "R", false},
		{"-N2 -n5", of("qos high"), &pb.JobSpec{MinNodes: 2, MaxNodes: 2, NumTasks: 5}, "high", "R", false},
		{"-N2 -n6", of("qos high"), &pb.JobSpec{MinNodes: 2, MaxNodes: 2, NumTasks: 6}, "high", cpu, true},
		{"-n3", of("qos high"), &pb.JobSpec{NumTasks: 3}, "high", cpu, true},
		{"-N1 -n2", of("qos high"), &pb.JobSpec{MinNodes: 1, MaxNodes: 1, NumTasks: 2}, "high", "R", false},
		{"--mem=501", of("qos high"), &pb.JobSpec{MemPerNodeMib: 501}, "high", mem, true},
		{"--mem=400", of("qos high"), &pb.JobSpec{MemPerNodeMib: 400}, "high", "R", false},
		{"-N1 -n1 --exclusive", of("qos high"), &pb.JobSpec{MinNodes: 1, MaxNodes: 1, NumTasks: 1, Sharing: "exclusive"}, "high", cpu,
			false},
		{"an account", of("account lab"), &pb.JobSpec{MinNodes: 1, MaxNodes: 1, NumTasks: 3}, "normal", "AssocMaxCpuPerNode", false},
		{"an account, -N2", of("account lab"), &pb.JobSpec{MinNodes: 2, MaxNodes: 2, NumTasks: 3}, "normal", "R", false},
		{"an account, --mem", of("account lab"), &pb.JobSpec{MemPerNodeMib: 501}, "normal", "AssocMaxMemPerNode", false},
		{"both", of("account lab") + ",qos high MaxTRESPerNode cpu 3", &pb.JobSpec{MinNodes: 1, MaxNodes: 1, NumTasks: 3}, "high", "R",
			false},
		{"both, 4", of("account lab") + ",qos high MaxTRESPerNode cpu 3", &pb.JobSpec{MinNodes: 1, MaxNodes: 1, NumTasks: 4}, "high", cpu,
			true},
		{"both, --mem", of("account lab") + ",qos high MaxTRESPerNode cpu 3", &pb.JobSpec{MemPerNodeMib: 501}, "high",
			"AssocMaxMemPerNode", true},
	} {
		for _, deny := range []string{"", "DenyOnLimit"} {
			b := limitBench(t)
			b.limits(strings.Split(tt.limits, ",")...)
			b.change(&pb.ChangePolicyRequest{Verb: pb.PolicyVerb_POLICY_MODIFY, Entity: pb.PolicyEntity_POLICY_QOS, Names: []string{"high"},
				Set: []*pb.PolicySetting{{Name: "Flags", Words: strings.Fields(deny)}}})
			refused := b.send("u1", "lab", tt.qos, state.CloneSpec(tt.spec))
			if deny != "" && tt.refused {
				if refused != tt.want {
					t.Errorf("%s, DenyOnLimit: refused with %q, want %q", tt.what, refused, tt.want)
				}
				continue
			}
			b.send("u1", "lab", tt.qos, &pb.JobSpec{NumTasks: 1}) // it is not held up
			if got := strings.Join(b.reasons(), " "); got != tt.want+" R" {
				t.Errorf("%s: %s, want %s R", tt.what, got, tt.want)
			}
			if tt.want != "R" && tt.refused == (tt.qos == "high") && !strings.Contains(b.explained(1), "for each of its nodes") {
				t.Errorf("%s: %q", tt.what, b.explained(1))
			}
		}
	}
}

// TestMinTRES: which jobs start under a QOS with minimums, and which are refused with DenyOnLimit. Results and reasons are those of Slurm
// 22.05: the job's allocation counts, or, with DenyOnLimit, the least that it asks for.
func TestMinTRES(t *testing.T) {
	const cpu, mem, node = "QOSMinCpuNotSatisfied", "QOSMinMemory", "QOSMinNode"
	for _, tt := range []struct {
		what, limits, where string
		spec                *pb.JobSpec
		want                string
		refused             bool // with DenyOnLimit
	}{
		{"-n3", "cpu 4", "", &pb.JobSpec{NumTasks: 3}, cpu, true},
		{"-n4", "cpu 4", "", &pb.JobSpec{NumTasks: 4}, "R", false},
		{"-N1-4 -n3", "cpu 4", "", &pb.JobSpec{MinNodes: 1, MaxNodes: 4, NumTasks: 3}, cpu, true},
		{"-N2 -n3", "cpu 4", "", &pb.JobSpec{MinNodes: 2, MaxNodes: 2, NumTasks: 3}, cpu, true},
		{"-n1 --exclusive", "cpu 4", "", &pb.JobSpec{NumTasks: 1, Sharing: "exclusive"}, "R", true},
		{"-n2 -c2", "cpu 4", "", &pb.JobSpec{NumTasks: 2, CpusPerTask: 2}, "R", false},
		{"--mem=499", "mem 500", "", &pb.JobSpec{NumTasks: 1, MemPerNodeMib: 499}, mem, true},
		{"--mem=500", "mem 500", "", &pb.JobSpec{NumTasks: 1, MemPerNodeMib: 500}, "R", false},
		{"--mem=0", "mem 500", "", &pb.JobSpec{NumTasks: 1, MemAll: true}, "R", false},
		{"-n1", "mem 500", "", &pb.JobSpec{NumTasks: 1}, mem, true},
		{"-n5", "mem 500", "", &pb.JobSpec{NumTasks: 5}, "R", false},
		{"-N2 --mem=250", "mem 500", "", &pb.JobSpec{MinNodes: 2, MaxNodes: 2, MemPerNodeMib: 250}, "R", false},
		{"-N1", "node 2", "", &pb.JobSpec{MinNodes: 1, MaxNodes: 1}, node, true},
		{"-N2", "node 2", "", &pb.JobSpec{MinNodes: 2, MaxNodes: 2}, "R", false},
		{"-N1-2", "node 2", "", &pb.JobSpec{MinNodes: 1, MaxNodes: 2}, "R", true},
		{"-n5, two nodes", "node 2", "", &pb.JobSpec{NumTasks: 5}, "R", true},
		{"-n1, two nodes", "node 2", "", &pb.JobSpec{NumTasks: 1}, node, true},
		{"-n3, beside a limit", "cpu 4,qos high MaxTRESPerJob cpu 2", "", &pb.JobSpec{NumTasks: 3}, "QOSMaxCpuPerJobLimit", true},
		{"-n3, beside another", "cpu 4,qos high MaxTRESPerUser cpu 1", "", &pb.JobSpec{NumTasks: 3}, cpu, true},
		{"-n3, both", "mem 1000,qos high MinTRESPerJob cpu 4", "", &pb.JobSpec{NumTasks: 3}, cpu, true},
		{"-n3 in a partition", "cpu 2,qos part MinTRESPerJob cpu 4", "other", &pb.JobSpec{NumTasks: 3}, cpu, true},
		{"-n4 in a partition", "cpu 2,qos part MinTRESPerJob cpu 4", "other", &pb.JobSpec{NumTasks: 4}, "R", false},
		{"-n3 in two partitions", "cpu 2,qos part MinTRESPerJob cpu 4", "other,debug", &pb.JobSpec{NumTasks: 3}, "R", true},
	} {
		for _, deny := range []string{"", "DenyOnLimit"} {
			b := limitBench(t)
			b.change(&pb.ChangePolicyRequest{Entity: pb.PolicyEntity_POLICY_QOS, Names: []string{"part"}})
			b.partitionQOS("part")
			b.limits(strings.Split("qos high MinTRESPerJob "+tt.limits, ",")...)
			b.change(&pb.ChangePolicyRequest{Verb: pb.PolicyVerb_POLICY_MODIFY, Entity: pb.PolicyEntity_POLICY_QOS, Names: []string{"high"},
				Set: []*pb.PolicySetting{{Name: "Flags", Words: strings.Fields(deny)}}})
			spec := state.CloneSpec(tt.spec)
			spec.Partition = tt.where
			refused := b.send("u1", "lab", "high", spec)
			if (refused != "") != (deny != "" && tt.refused) || refused != "" && tt.want != "R" && refused != tt.want {
				t.Errorf("%s, %s: refused with %q, want %q", tt.what, deny, refused, tt.want)
			}
			if refused != "" {
				continue
			}
			b.send("u1", "lab", "", &pb.JobSpec{NumTasks: 1}) // it is not held up
			if got := strings.Join(b.reasons(), " "); got != tt.want+" R" {
				t.Errorf("%s: %s, want %s R", tt.what, got, tt.want)
			}
			if strings.HasPrefix(tt.want, "QOSMin") && !strings.Contains(b.explained(1), " at least, this asks for ") {
				t.Errorf("%s: %q", tt.what, b.explained(1))
			}
		}
	}
}

// TestMinTRESWaits: a job of one or two nodes waits for the second, as with a Slurm 22.05, and one in a QOS that prevails there does not.
func TestMinTRESWaits(t *testing.T) {
	b := limitBench(t)
	b.change(&pb.ChangePolicyRequest{Entity: pb.PolicyEntity_POLICY_QOS, Names: []string{"part"}})
	b.partitionQOS("part")
	b.limits("qos high MinTRESPerJob cpu 2", "qos part MinTRESPerJob node 2", "qos part MinTRESPerJob cpu 4")
	range2 := func() *pb.JobSpec { return &pb.JobSpec{Partition: "other", MinNodes: 1, MaxNodes: 2, CpusPerTask: 2} }
	b.send("u1", "lab", "", &pb.JobSpec{MinNodes: 2, MaxNodes: 2, Sharing: "exclusive"})
	b.send("u1", "lab", "high", range2())
	if got := strings.Join(b.reasons(), " "); got != "R QOSMinCpuNotSatisfied" {
		t.Error(got)
	}
	b.change(&pb.ChangePolicyRequest{Verb: pb.PolicyVerb_POLICY_MODIFY, Entity: pb.PolicyEntity_POLICY_QOS, Names: []string{"high"},
		Set: []*pb.PolicySetting{{Name: "Flags", Words: []string{"OverPartQOS"}}}})
	if got := strings.Join(b.reasons(), " "); got != "R QOSMinNode" {
		t.Error(got)
	}
	b.finish(b.loop.View().Jobs.Get(1))
	if got := strings.Join(b.reasons(), " "); !strings.HasSuffix(got, " R") {
		t.Error(got)
	}
}

// TestUsageThreshold: jobs of a QOS wait while the fair-share factor of their user is below its threshold, or not known.
func TestUsageThreshold(t *testing.T) {
	b := limitBench(t)
	b.change(&pb.ChangePolicyRequest{Entity: pb.PolicyEntity_POLICY_QOS, Names: []string{"part"}})
	b.limits("qos high UsageThreshold 333333", "qos part UsageThreshold 600000")
	flags := func(qos string, words ...string) {
		b.change(&pb.ChangePolicyRequest{Verb: pb.PolicyVerb_POLICY_MODIFY, Entity: pb.PolicyEntity_POLICY_QOS, Names: []string{qos},
			Set: []*pb.PolicySetting{{Name: "Flags", Words: words}}})
	}
	factors := func(u1, u2 float64) {
		b.p.SetShares([]record.Share{{Account: "lab", User: "u1", Factor: u1}, {Account: "lab", User: "u2", Factor: u2}})
	}
	check := func(what, want string) {
		t.Helper()
		if got := strings.Join(b.reasons(), " "); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	const below = "QOSUsageThreshold"
	one := func() *pb.JobSpec { return &pb.JobSpec{NumTasks: 1, TimeLimitS: 600} }
	b.send("u1", "lab", "high", one())
	check("without EnforceUsageThreshold", "R")
	flags("high", "EnforceUsageThreshold", "DenyOnLimit")
	if v := b.loop.View(); !v.Policy().Thresholds() {
		t.Error("there is a threshold")
	}
	b.send("u1", "lab", "high", one())
	b.send("u2", "lab", "high", one())
	b.send("u1", "lab", "normal", one())
	check("factors are not known", "R "+below+" "+below+" R")
	factors(0.2, 1.0/3) // shown as 0.333333
	check("that of u1 is below", "R "+below+" R R")
	if got := b.explained(2); !strings.Contains(got, "QOS high has a UsageThreshold of 0.333333") {
		t.Error(got)
	}
	factors(0.5, 0.1)
	check("that of u1 is above", "R R R R")
	b.partitionQOS("part")
	flags("part", "EnforceUsageThreshold")
	other := one()
	other.Partition = "other"
	b.send("u1", "lab", "high", state.CloneSpec(other))
	check("that of the partition's QOS counts", "R R R R "+below)
	flags("high", "EnforceUsageThreshold", "OverPartQOS")
	check("that of its own counts", "R R R R R")
}

// explained returns the answer of sluice explain for a waiting job.
func (b *bench) explained(id uint32) string {
	v := b.loop.View()
	g := NewAdvisor(record.Params{Weights: record.Weights{Basic: true}})
	g.SetShares(b.p.mirror.shares)
	return explain.Waiting(v, v.Jobs.Get(id), g.Why)
}

// partitionQOS gives the partition "other" a QOS.
func (b *bench) partitionQOS(name string) {
	out := b.do(reactor.UpdatePartition{Caller: operator, Name: "other", Set: []*pb.KeyValue{{Key: "QOS", Value: name}}})
	if p, ok := out.(*pb.Problem); ok {
		b.t.Fatal(p)
	}
}

// TestLimitsOfClosedPartitions: a job is under the limits of every open partition in its list, at any position.
func TestLimitsOfClosedPartitions(t *testing.T) {
	for _, tt := range []struct{ closed, partitions, want string }{
		{"debug", "debug,other", "QOSGrpJobsLimit"},
		{"other", "other,debug", "R"},
		{"", "other,debug", "R"},
	} {
		b := limitBench(t)
		b.change(&pb.ChangePolicyRequest{Entity: pb.PolicyEntity_POLICY_QOS, Names: []string{"part"}})
		b.limits("qos part GrpJobs 0")
		b.partitionQOS("part")
		if tt.closed != "" {
			b.do(reactor.UpdatePartition{Caller: operator, Name: tt.closed, Set: []*pb.KeyValue{{Key: "AllowAccounts", Value: "group"}}})
		}
		b.send("u1", "lab", "", &pb.JobSpec{Partition: tt.partitions, NumTasks: 1, TimeLimitS: 600})
		if got := strings.Join(b.reasons(), " "); got != tt.want {
			t.Errorf("in %s, %s closed: %s, want %s", tt.partitions, tt.closed, got, tt.want)
		}
		b.change(&pb.ChangePolicyRequest{Names: []string{"another"}})
		for range 2 { // the first pass after a change of accounts knows all about it
			if b.reasons(); tt.want == "R" && b.p.mirror.limits.outdated(b.loop.View()) {
				t.Error("the limits are of an earlier view, and every pass begins anew")
			}
		}
	}
}

// TestUpdatesOfPartitions: a job that is changed counts already where it stays, and nowhere else.
func TestUpdatesOfPartitions(t *testing.T) {
	b := limitBench(t)
	b.change(&pb.ChangePolicyRequest{Entity: pb.PolicyEntity_POLICY_QOS, Names: []string{"part"}})
	b.change(&pb.ChangePolicyRequest{Verb: pb.PolicyVerb_POLICY_MODIFY, Entity: pb.PolicyEntity_POLICY_QOS, Names: []string{"high"},
		Set: []*pb.PolicySetting{{Name: "Flags", Words: []string{"OverPartQOS"}}}})
	b.limits("qos part GrpSubmitJobs 1", "qos high GrpSubmitJobs 1")
	b.partitionQOS("part")
	u1 := reactor.Caller{UID: 1001}
	b.send("u1", "lab", "", &pb.JobSpec{Partition: "debug,other", Hold: true})
	b.send("u1", "lab", "", &pb.JobSpec{Partition: "debug,other", Hold: true})
	for _, tt := range []struct{ id, key, value, want string }{
		{"1", "Partition", "other", ""},
		{"2", "Partition", "other", "QOSGrpSubmitJobsLimit"},
		{"1", "QOS", "high", ""},
		{"1", "QOS", "normal", ""},
	} {
		if got := b.update(u1, tt.id, tt.key, tt.value); got != tt.want {
			t.Errorf("%s %s=%s: %q, want %q", tt.id, tt.key, tt.value, got, tt.want)
		}
	}
}

// TestPartitionQOSChanges: jobs that run count when their partition gets a QOS, and no longer when the QOS or the name of it goes.
func TestPartitionQOSChanges(t *testing.T) {
	b := limitBench(t)
	b.change(&pb.ChangePolicyRequest{Entity: pb.PolicyEntity_POLICY_QOS, Names: []string{"part"}})
	b.limits("qos part GrpTRES cpu 2", "qos part GrpTRESRunMins cpu 1000")
	send := func() { b.send("u1", "lab", "", &pb.JobSpec{Partition: "other", NumTasks: 1, TimeLimitS: 600}) }
	check := func(what, want string) {
		t.Helper()
		if got := strings.Join(b.reasons(), " "); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	send()
	send()
	check("no QOS", "R R")
	b.partitionQOS("part")
	send()
	check("the QOS is used up", "R R QOSGrpCpuLimit")
	b.enforce(false)
	check("a restart forgets the change", "R R R")
	b.partitionQOS("part")
	send()
	check("it is overdrawn", "R R R QOSGrpCpuLimit")
	b.change(&pb.ChangePolicyRequest{Verb: pb.PolicyVerb_POLICY_DELETE, Entity: pb.PolicyEntity_POLICY_QOS, Names: []string{"part"}})
	check("the QOS is deleted", "R R R R")
	send()
	b.change(&pb.ChangePolicyRequest{Entity: pb.PolicyEntity_POLICY_QOS, Names: []string{"part"}})
	b.limits("qos part GrpJobs 5")
	check("there is one of that name again", "R R R R R")
	send()
	check("its limit holds", "R R R R R QOSGrpJobsLimit")
	b.partitionQOS("")
	check("the partition has none", "R R R R R R")
	out := b.do(reactor.UpdatePartition{Caller: operator, Name: "other", Set: []*pb.KeyValue{{Key: "QOS", Value: "nosuch"}}})
	if p, ok := out.(*pb.Problem); !ok || p.Code != uint32(pb.CodeInvalidQOS) {
		t.Errorf("an unknown QOS: %v", out)
	}
}

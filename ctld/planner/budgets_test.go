package planner

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/ctld/explain"
	"github.com/sluice-hpc/sluice/ctld/limit"
	"github.com/sluice-hpc/sluice/ctld/loop"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/record"
	"pgregory.net/rapid"
)

// enforce restarts the controller; safe is AccountingStorageEnforce=safe. After that, the usage of budgets is unknown.
func (b *bench) enforce(safe bool) {
	cfg := config(3)
	cfg.Settings.EnforceAssocs, cfg.Settings.EnforceLimits, cfg.Settings.EnforceSafe = true, true, safe
	v, err := state.Load(cfg, b.store, "c", 1)
	if err != nil {
		b.t.Fatal(err)
	}
	clock := func() time.Time { return time.Unix(0, b.now) }
	b.loop = loop.New(b.store, v, clock, discard())
	b.p = New(b.loop, record.Params{Weights: record.Weights{Basic: true}}, clock, discard())
	b.loop.Observe(b.p.Changed)
	for i := range 3 {
		b.do(hello(fmt.Sprintf("n%d", i+1)))
	}
}

// past says how much accounts and QOS have used before: "lab cpu" or "qos high wall", in TRES minutes.
func (b *bench) past(minutes map[string]int64) {
	v := b.loop.View()
	p := &state.Past{Counting: v.Counting(), Assoc: map[uint32]map[string]int64{}, QOS: map[uint32]map[string]int64{}}
	set := func(to map[uint32]map[string]int64, id uint32, name string, n int64) {
		if to[id] == nil {
			to[id] = map[string]int64{}
		}
		to[id][name] = 60 * n
	}
	for key, n := range minutes {
		if w := strings.Fields(key); w[0] == "qos" {
			set(p.QOS, v.Policy().QOS(w[1]).Id, w[2], n)
		} else {
			set(p.Assoc, v.Policy().Assoc("", w[0], "").Id, w[1], n)
		}
	}
	b.do(reactor.PastRead{Past: p})
}

// TestLimitsOverTime: which of several jobs with two CPUs and ten minutes start. The reasons, and what starts, are those of a Slurm 22.05.
func TestLimitsOverTime(t *testing.T) {
	for _, tt := range []struct {
		limits, qos string
		used        map[string]int64
		jobs        string
		want, safe  string // with AccountingStorageEnforce=limits and =safe
	}{
		{"account lab GrpTRESMins cpu 0", "", nil, "u1@lab u1@group", "AssocGrpCPUMinutesLimit R", "AssocGrpCPUMinutesLimit R"},
		{"account lab GrpTRESMins mem 0", "", nil, "u1@lab", "AssocGrpMemMinutes", "AssocGrpMemMinutes"},
		{"account lab GrpTRESMins node 0", "", nil, "u1@lab", "AssocGrpNodeMinutes", "AssocGrpNodeMinutes"},
		{"account lab GrpTRESMins billing 0", "", nil, "u1@lab", "AssocGrpBillingMinutes", "AssocGrpBillingMinutes"},
		{"account lab GrpTRESMins gres/gpu 0", "", nil, "u1@lab", "R", "R"}, // it has none
		{"account lab GrpTRESMins cpu 19", "", nil, "u1@lab u2@lab", "R R", "AssocGrpCPUMinutesLimit AssocGrpCPUMinutesLimit"},
		{"account lab GrpTRESMins cpu 20", "", nil, "u1@lab u2@lab", "R R", "R AssocGrpCPUMinutesLimit"},
		{"account lab GrpTRESMins cpu 20", "", map[string]int64{"lab cpu": 1}, "u1@lab", "R", "AssocGrpCPUMinutesLimit"},
		{"account lab GrpTRESMins cpu 20", "", map[string]int64{"lab cpu": 20}, "u1@lab u1@group", "AssocGrpCPUMinutesLimit R",
			"AssocGrpCPUMinutesLimit R"},
		{"account root GrpTRESMins cpu 20", "", map[string]int64{"root cpu": 20}, "u1@lab", "AssocGrpCPUMinutesLimit",
			"AssocGrpCPUMinutesLimit"},
		{"user u1@lab GrpTRESMins cpu 0", "", nil, "u1@lab u2@lab", "AssocGrpCPUMinutesLimit R", "AssocGrpCPUMinutesLimit R"},
		{"account lab GrpWall 0", "", nil, "u1@lab", "AssocGrpWallLimit", "AssocGrpWallLimit"},
		{"account lab GrpWall 300", "", nil, "u1@lab", "R", "AssocGrpWallLimit"},
		{"account lab GrpWall 1199", "", nil, "u1@lab u1@lab", "R R", "R AssocGrpWallLimit"},
		{"account lab GrpTRESRunMins cpu 39", "", nil, "u1@lab u2@lab", "R AssocGrpCPURunMinutesLimit", "R AssocGrpCPURunMinutesLimit"},
		{"account lab GrpTRESRunMins cpu 40", "", map[string]int64{"lab cpu": 99}, "u1@lab u2@lab", "R R", "R R"},
		{"account lab GrpTRESRunMins mem 1", "", nil, "u1@lab", "AssocGrpMemRunMinutes", "AssocGrpMemRunMinutes"},
		{"account lab GrpTRESRunMins node 1", "", nil, "u1@lab", "AssocGrpNodeRunMinutes", "AssocGrpNodeRunMinutes"},
		{"account lab GrpTRESRunMins billing 1", "", nil, "u1@lab", "AssocGrpBillingRunMinutes", "AssocGrpBillingRunMinutes"},
		{"account lab GrpTRESRunMins gres/gpu 0", "", nil, "u1@lab", "R", "R"},
		{"qos normal GrpTRESMins cpu 0", "", nil, "u1@lab", "QOSGrpCPUMinutesLimit", "QOSGrpCPUMinutesLimit"},
		{"qos normal GrpTRESMins mem 0", "", nil, "u1@lab", "QOSGrpMemoryMinutes", "QOSGrpMemoryMinutes"},
		{"qos normal GrpTRESMins node 0", "", nil, "u1@lab", "QOSGrpNodeMinutes", "QOSGrpNodeMinutes"},
		{"qos normal GrpTRESMins cpu 20", "", map[string]int64{"qos normal cpu": 20}, "u1@lab", "QOSGrpCPUMinutesLimit",
			"QOSGrpCPUMinutesLimit"},
		{"qos normal GrpWall 0", "", nil, "u1@lab", "QOSGrpWallLimit", "QOSGrpWallLimit"},
		{"qos normal GrpTRESRunMins cpu 1", "", nil, "u1@lab", "QOSGrpCPURunMinutesLimit", "QOSGrpCPURunMinutesLimit"},
		{"qos normal GrpTRESRunMins mem 1", "", nil, "u1@lab", "QOSGrpMemoryRunMinutes", "QOSGrpMemoryRunMinutes"},
		{"qos normal GrpTRESRunMins node 1", "", nil, "u1@lab", "QOSGrpNodeRunMinutes", "QOSGrpNodeRunMinutes"},
		{"qos normal GrpTRESRunMins billing 1", "", nil, "u1@lab", "QOSGrpBillingRunMinutes", "QOSGrpBillingRunMinutes"},
		{"account lab GrpTRESMins cpu 0,qos high GrpTRESMins cpu 100", "high", nil, "u1@lab", "R", "R"},
		{"account lab GrpTRESMins cpu 0,qos high UsageFactor 0", "high", nil, "u1@lab", "AssocGrpCPUMinutesLimit",
			"AssocGrpCPUMinutesLimit"},
		{"account lab GrpTRESMins cpu 0,qos high UsageFactor 0 safe", "high", nil, "u1@lab", "R", "R"},
		{"account lab GrpTRESMins cpu 30,qos high UsageFactor 2000000", "high", nil, "u1@lab u1@lab", "R R", "R AssocGrpCPUMinutesLimit"},
		{"account lab GrpTRESMins cpu 30,qos high UsageFactor 2000000 safe", "high", nil, "u1@lab", "R", "AssocGrpCPUMinutesLimit"},
		{"account lab GrpTRESRunMins cpu 40,qos high UsageFactor 2000000", "high", nil, "u1@lab u1@lab",
			"R AssocGrpCPURunMinutesLimit", "R AssocGrpCPURunMinutesLimit"},
		{"account lab GrpTRESRunMins cpu 30,qos high UsageFactor 2000000", "high", nil, "u1@lab", "R", "R"},
		{"account lab GrpTRESRunMins cpu 30,qos high UsageFactor 2000000 safe", "high", nil, "u1@lab",
			"AssocGrpCPURunMinutesLimit", "AssocGrpCPURunMinutesLimit"},
		{"account lab GrpTRESRunMins cpu 20,qos high UsageFactor 0", "high", nil, "u1@lab u2@lab u1@lab", "R R R", "R R R"},
		{"account lab GrpTRESRunMins cpu 19,qos high UsageFactor 0", "high", nil, "u1@lab", "AssocGrpCPURunMinutesLimit",
			"AssocGrpCPURunMinutesLimit"},
		{"account lab GrpTRESRunMins cpu 19,qos high UsageFactor 0 safe", "high", nil, "u1@lab", "R", "R"},
		{"user u1@lab MaxTRESMinsPerJob cpu 30,qos high UsageFactor 2000000", "high", nil, "u1@lab", "R", "R"},
		{"user u1@lab MaxTRESMinsPerJob cpu 30,qos high UsageFactor 2000000 safe", "high", nil, "u1@lab", "AssocMaxCpuMinutesPerJobLimit",
			"AssocMaxCpuMinutesPerJobLimit"},
		{"account lab GrpTRESMins mem 0,qos high GrpTRESMins cpu 100", "high", nil, "u1@lab", "AssocGrpMemMinutes", "AssocGrpMemMinutes"},
	} {
		for safe, want := range map[bool]string{false: tt.want, true: tt.safe} {
			b := limitBench(t)
			b.limits(strings.Split(tt.limits, ",")...)
			b.enforce(safe)
			b.past(tt.used)
			for _, who := range strings.Fields(tt.jobs) {
				user, account, _ := strings.Cut(who, "@")
				b.send(user, account, tt.qos, &pb.JobSpec{NumTasks: 2, TimeLimitS: 600})
			}
			if got := strings.Join(b.reasons(), " "); got != want {
				t.Errorf("%s, used %v, safe=%v: %s, want %s", tt.limits, tt.used, safe, got, want)
			}
		}
	}
}

// TestRunMinutesOfUsersAndAccounts: which of several jobs with two CPUs and ten minutes start where a QOS limits what running jobs of each
// user or account may still use. A Slurm 22.05 stores such limits alone; the reasons are those of 24.05.
func TestRunMinutesOfUsersAndAccounts(t *testing.T) {
	const user, account = "MaxCpuRunMinsPerUser", "MaxCpuRunMinsPerAccount"
	for _, tt := range []struct{ limits, jobs, want string }{
		{"qos high MaxTRESRunMinsPerUser cpu 40", "high u1@lab,high u1@group,high u1@lab,high u2@lab,normal u1@lab",
			"R R " + user + " R R"},
		{"qos high MaxTRESRunMinsPerUser cpu 19", "high u1@lab", user},
		{"qos high MaxTRESRunMinsPerUser mem 1999", "high u1@lab", "MaxMemoryRunMinsPerUser"},
		{"qos high MaxTRESRunMinsPerUser node 9", "high u1@lab", "MaxNodeRunMinsPerUser"},
		{"qos high MaxTRESRunMinsPerUser billing 19", "high u1@lab", "MaxBillingRunMinsPerUser"},
		{"qos high MaxTRESRunMinsPerUser gres/gpu 0", "high u1@lab", "R"},
		{"qos high MaxTRESRunMinsPerAccount cpu 40", "high u1@lab,high u2@lab,high u1@lab,high u1@group", "R R " + account + " R"},
		{"qos high MaxTRESRunMinsPerAccount mem 1999", "high u1@lab", "MaxMemoryRunMinsPerAccount"},
		{"qos high MaxTRESRunMinsPerAccount billing 19", "high u1@lab", "MaxBillingRunMinsPerAccount"},
		{"qos high MaxTRESRunMinsPerUser cpu 40,qos high UsageFactor 2000000", "high u1@lab,high u1@lab", "R " + user},
		{"qos high MaxTRESRunMinsPerUser cpu 20,qos high UsageFactor 2000000 safe", "high u1@lab", user},
		{"qos high MaxTRESRunMinsPerUser cpu 19,qos high UsageFactor 0 safe", "high u1@lab", "R"},
		{"qos high MaxTRESRunMinsPerUser cpu 20,account lab GrpTRESRunMins cpu 20", "high u1@lab,normal u2@lab",
			"R AssocGrpCPURunMinutesLimit"},
		// Of a partition's QOS; it goes before the job's own.
		{"qos part MaxTRESRunMinsPerUser cpu 20", "normal u1@lab@other,high u1@lab@other,normal u1@lab,high u2@lab@other",
			"R " + user + " R R"},
		{"qos part MaxTRESRunMinsPerUser cpu 40,qos high MaxTRESRunMinsPerUser cpu 20", "high u1@lab@other,high u1@lab@other,high u1@lab",
			"R R " + user},
	} {
		b := limitBench(t)
		b.change(&pb.ChangePolicyRequest{Entity: pb.PolicyEntity_POLICY_QOS, Names: []string{"part"}})
		b.partitionQOS("part")
		b.limits(strings.Split(tt.limits, ",")...)
		for job := range strings.SplitSeq(tt.jobs, ",") {
			qos, who, _ := strings.Cut(job, " ")
			w := append(strings.Split(who, "@"), "")
			b.send(w[0], w[1], qos, &pb.JobSpec{NumTasks: 2, TimeLimitS: 600, Partition: w[2]})
		}
		if got := strings.Join(b.reasons(), " "); got != tt.want {
			t.Errorf("%s; %s: %s, want %s", tt.limits, tt.jobs, got, tt.want)
		}
	}
}

// TestRunMinutesPass: a job starts as soon as what running jobs may still use leaves it enough, without anything else happening.
func TestRunMinutesPass(t *testing.T) {
	for _, limit := range []string{"qos high MaxTRESRunMinsPerUser cpu 30", "qos high MaxTRESRunMinsPerAccount cpu 30",
		"qos high GrpTRESRunMins cpu 30", "account lab GrpTRESRunMins cpu 30"} {
		b := limitBench(t)
		b.limits(limit)
		for range 2 {
			b.send("u1", "lab", "high", &pb.JobSpec{NumTasks: 2, TimeLimitS: 600})
		}
		b.reasons()
		plan, _ := b.p.Prepare(record.Cursor{})
		if want := b.now/1e9 + 300; plan.Wake != want { // 20 CPU minutes are needed, and 10 left
			t.Errorf("%s: the next pass is at %d, want %d", limit, plan.Wake, want)
		}
		b.now += 299e9
		if got := b.reasons(); got[1] == "R" {
			t.Errorf("%s: it starts too early", limit)
		}
		b.now += 1e9
		if got := b.reasons(); got[1] != "R" {
			t.Errorf("%s: %s", limit, got)
		}
	}
}

// TestBudgetIsUnknownAtFirst: after a restart jobs wait until accounting has been read, and then start without anything else happening.
func TestBudgetIsUnknownAtFirst(t *testing.T) {
	b := limitBench(t)
	b.limits("account lab GrpTRESMins cpu 100")
	b.send("u1", "lab", "", &pb.JobSpec{NumTasks: 2, TimeLimitS: 600})
	b.enforce(false)
	if got := strings.Join(b.reasons(), " "); got != "AssocGrpCPUMinutesLimit" {
		t.Fatal(got)
	}
	old := &state.Past{Counting: b.loop.View().Counting() + 1}
	b.do(reactor.PastRead{Past: old}) // of another tree of accounts
	if got := strings.Join(b.reasons(), " "); got != "AssocGrpCPUMinutesLimit" {
		t.Fatal(got)
	}
	for len(b.p.wake) > 0 {
		<-b.p.wake
	}
	b.past(nil)
	select {
	case <-b.p.wake:
	default:
		t.Error("the planner is not woken")
	}
	if got := strings.Join(b.reasons(), " "); got != "R" {
		t.Error(got)
	}
}

// TestBudgetRunsOut: a job that runs when its budget is used up ends as at its time limit, once, also when the controller is restarted in
// between; one that does not use that budget goes on.
func TestBudgetRunsOut(t *testing.T) {
	for limit, why := range map[string]string{
		"account lab GrpTRESMins cpu 10": "account lab has used up 0.17 hours of cpu (AssocGrpCPUMinutesLimit)",
		"account lab GrpWall 300":        "account lab has used up 0.08 hours of run time (AssocGrpWallLimit)",
		"qos high GrpTRESMins cpu 10":    "QOS high has used up 0.17 hours of cpu (QOSGrpCPUMinutesLimit)",
	} {
		b := limitBench(t)
		b.limits(limit)
		b.past(nil)
		b.send("u1", "lab", "high", &pb.JobSpec{NumTasks: 2, TimeLimitS: 3600})
		b.send("u1", "group", "normal", &pb.JobSpec{NumTasks: 2, TimeLimitS: 3600})
		b.reasons()
		b.now += 299e9
		b.do(reactor.Tick{})
		if got := strings.Join(b.reasons(), " "); got != "R R" {
			t.Fatal(limit, got)
		}
		b.now += 1e9
		b.do(reactor.Tick{})
		one, other := b.loop.View().Jobs.Get(1), b.loop.View().Jobs.Get(2)
		if one.State != pb.JobState_JOB_TIMEOUT || one.StopReason != "timeout" || one.Reason != "TimeLimit" ||
			one.ReasonDetail != "out of budget: "+why {
			t.Errorf("%s: %v %s %s %q", limit, one.State, one.StopReason, one.Reason, one.ReasonDetail)
		}
		if other.State != pb.JobState_JOB_RUNNING {
			t.Errorf("%s: the other job is %v", limit, other.State)
		}
		b.enforce(false)
		b.past(nil)
		b.now += 5e9
		b.do(reactor.Tick{})
		if again := b.loop.View().Jobs.Get(1); again.EndNs != one.EndNs || again.StopReason != "timeout" {
			t.Errorf("%s: after a restart %+v", limit, again)
		}
		b.finish(b.loop.View().Jobs.Get(1))
		if end := b.loop.View().Jobs.Get(1); end.State != pb.JobState_JOB_TIMEOUT || end.StateFlags != 0 || end.EndNs != one.EndNs {
			t.Errorf("%s: at the end %+v", limit, end)
		}
		b.reasons()
	}
}

// TestExhausted: jobs are not asked each time whether they have to end if their QOS has a budget that counts instead of the one that is
// used up, however long they run on.
func TestExhausted(t *testing.T) {
	for _, tt := range []struct {
		limits, jobs string // QOS@account
		want         bool
	}{
		{"account group GrpTRESMins cpu 10,qos high GrpTRESMins cpu 1000", "high@lab high@group", false},
		{"account group GrpTRESMins cpu 10,qos high GrpTRESMins cpu 1000", "high@lab normal@lab", true},
		{"account group GrpTRESMins cpu 10,qos high GrpTRESMins mem 100000", "high@lab", true},
		{"account lab GrpTRESMins cpu 10,qos high GrpTRESMins cpu 1000", "high@lab normal@group", false},
		{"account group GrpTRESMins gres/gpu 0,qos high GrpTRESMins cpu 1000", "high@lab normal@group", false},
		{"account root GrpWall 300,qos high GrpWall 60000", "high@lab", false},
		{"account root GrpWall 300", "high@lab", true},
		{"user u1@lab GrpTRESMins cpu 10,qos high GrpTRESMins cpu 1000", "high@lab", false},
		{"user u1@lab GrpTRESMins cpu 10,qos high GrpTRESMins cpu 1000", "high@lab normal@lab", true},
		{"user u1@lab GrpTRESMins cpu 10,qos high GrpTRESMins cpu 1000", "high@lab normal@group", false},
		{"qos high GrpTRESMins cpu 10", "high@lab", true},
	} {
		b := limitBench(t)
		b.limits(strings.Split(tt.limits, ",")...)
		b.past(nil)
		for _, job := range strings.Fields(tt.jobs) {
			qos, account, _ := strings.Cut(job, "@")
			b.send("u1", account, qos, &pb.JobSpec{NumTasks: 2, TimeLimitS: 36000})
		}
		b.reasons()
		if v := b.loop.View(); limit.Exhausted(v, b.now/1e9) || limit.Exhausted(v, b.now/1e9+3000) != tt.want {
			t.Errorf("%s; %s: not %v", tt.limits, tt.jobs, tt.want)
		}
	}
}

// TestExplainBudgets: sluice explain has the figures.
func TestExplainBudgets(t *testing.T) {
	for _, tt := range []struct {
		limit, want string
		safe        bool
	}{
		{"account group GrpTRESMins cpu 60", "account group has used 1.5 hours of 1 hour of cpu (AssocGrpCPUMinutesLimit)", false},
		{"account group GrpTRESMins cpu 120", "account group has used 1.5 hours of 2 hours of cpu, running jobs may use 0.5 hours more " +
			"and this 0.5 hours (AssocGrpCPUMinutesLimit)", true},
		{"account lab GrpTRESRunMins cpu 45", "account lab: running jobs may still use 0.5 hours of 0.75 hours of cpu, this would add " +
			"0.5 hours (AssocGrpCPURunMinutesLimit)", false},
		{"qos normal MaxTRESRunMinsPerUser cpu 45", "QOS normal, user u1: running jobs may still use 0.5 hours of 0.75 hours of cpu, " +
			"this would add 0.5 hours (MaxCpuRunMinsPerUser)", false},
		{"qos normal GrpWall 1800", "QOS normal has used 0.5 hours of 0.5 hours of run time (QOSGrpWallLimit)", false},
		{"account lab GrpTRESRunMins cpu 65,qos normal UsageFactor 1500000 safe", "account lab: running jobs may still use 0.75 hours of " +
			"1.08 hours of cpu, this would add 0.75 hours (AssocGrpCPURunMinutesLimit, with UsageFactor 1.5)", false},
	} {
		b := limitBench(t)
		b.limits("account lab GrpTRESMins cpu 10000") // lines are counted from the beginning
		b.enforce(tt.safe)
		b.past(nil)
		b.send("u1", "lab", "", &pb.JobSpec{NumTasks: 2, TimeLimitS: 900})
		b.reasons()
		b.limits(strings.Split(tt.limit, ",")...)
		b.past(map[string]int64{"group cpu": 90, "qos normal wall": 30})
		b.send("u1", "lab", "", &pb.JobSpec{NumTasks: 2, TimeLimitS: 900})
		b.reasons()
		v := b.loop.View()
		got := explain.Waiting(v, v.Jobs.Get(2), NewAdvisor(record.Params{Weights: record.Weights{Basic: true}}).Why)
		if !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.limit, got, tt.want)
		}
	}
}

// spending is the test's own account of who ran when.
type spending struct {
	*bench
	safe   bool
	factor int64               // UsageFactor of high, in millionths
	ahead  bool                // with UsageFactorSafe
	limits map[string]uint64   // "account lab GrpTRESMins" and the number
	ran    []*pb.JobRecord     // as they started
	ended  map[uint32]int64    // in seconds
	past   map[string]int64    // as bench.past has it
	below  map[string][]string // accounts and what is below them
}

// reads returns the usage so far that counts for a limit of a job, and what running jobs may still use. Jobs in later do not count.
func (s *spending) reads(limit string, of *pb.JobRecord, later []uint32) (used, left int64) {
	w := strings.Fields(limit)
	name := "cpu"
	if w[2] == "GrpWall" {
		name = "wall"
	}
	key := w[1] + " " + name
	if w[0] == "qos" {
		key = "qos " + key
	}
	used = 60 * s.past[key]
	var usedHigh, leftHigh int64
	for _, j := range s.ran {
		if slices.Contains(later, j.Id) || !s.counts(limit, j) ||
			strings.HasSuffix(limit, "PerUser") && j.Spec.User != of.Spec.User ||
			strings.HasSuffix(limit, "PerAccount") && j.Spec.Account != of.Spec.Account {
			continue
		}
		n, end, used, left := int64(j.NumCpus), s.ended[j.Id], &used, &left
		if j.Spec.Qos == "high" {
			used, left = &usedHigh, &leftHigh
		}
		if name == "wall" {
			n = 1
		}
		if begin := j.StartNs / 1e9; end != 0 {
			*used += n * (end - begin)
		} else {
			*used += n * (s.now/1e9 - begin)
			*left += n * (begin + int64(j.TimeLimitS) - s.now/1e9)
		}
	}
	return used + usedHigh*s.factor/1e6, left + leftHigh*s.factor/1e6
}

// counts: a QOS's own limit takes the place of the same of accounts, for its jobs.
func (s *spending) counts(limit string, j *pb.JobRecord) bool {
	w := strings.Fields(limit)
	if w[0] == "qos" {
		return j.Spec.Qos == w[1]
	}
	return slices.Contains(s.below[w[1]], j.Spec.Account)
}

func (s *spending) holds(limit string, j *pb.JobRecord) bool {
	w := strings.Fields(limit)
	_, instead := s.limits["qos "+j.Spec.Qos+" "+w[2]]
	return s.counts(limit, j) && (w[0] == "qos" || !instead)
}

// breaks are the limits that a job breaks that starts now.
func (s *spending) breaks(j *pb.JobRecord, cpus uint32, later []uint32) (out []string) {
	for limit, most := range s.limits {
		if !s.holds(limit, j) {
			continue
		}
		n, max := int64(cpus), int64(most)*60
		if strings.HasSuffix(limit, "GrpWall") {
			n, max = 1, int64(most)
		}
		used, left := s.reads(limit, j, later)
		need := n * int64(j.Spec.TimeLimitS)
		if s.ahead && j.Spec.Qos == "high" {
			need = need * s.factor / 1e6
		}
		switch {
		case s.ahead && j.Spec.Qos == "high" && s.factor == 0:
		case strings.Contains(limit, "RunMins"):
			if left+need > max {
				out = append(out, limit)
			}
		case s.safe && used+left+need > max || used >= max:
			out = append(out, limit)
		}
	}
	return out
}

// TestNoBudgetIsExceeded: for any limits over time, usage and running jobs, no job starts that would break a limit. A job that keeps all
// limits does not wait, and a job that time alone lets in waits no longer than that. Exactly those jobs end that have used up a budget.
func TestNoBudgetIsExceeded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := limitBench(t)
		s := &spending{bench: b, safe: rapid.Bool().Draw(t, "safe"), limits: map[string]uint64{}, ended: map[uint32]int64{},
			past: map[string]int64{}, below: map[string][]string{"lab": {"lab"}, "group": {"lab", "group"}, "root": {"lab", "group"}}}
		set := func() {
			who := rapid.SampledFrom([]string{"account lab", "account group", "account root", "qos high", "qos normal"}).Draw(t, "who")
			kinds := []string{"GrpTRESMins", "GrpTRESRunMins", "GrpWall"}
			if strings.HasPrefix(who, "qos") {
				kinds = append(kinds, "MaxTRESRunMinsPerUser", "MaxTRESRunMinsPerAccount")
			}
			what := rapid.SampledFrom(kinds).Draw(t, "what")
			tres, n := " cpu ", uint64(rapid.IntRange(0, 200).Draw(t, "n"))
			if what == "GrpWall" {
				tres, n = " ", 60*n
			}
			s.limits[who+" "+what] = n
			b.limits(fmt.Sprint(who, " ", what, tres, n))
		}
		for range rapid.IntRange(1, 4).Draw(t, "limits") {
			set()
		}
		for _, qos := range []string{"high", "normal"} { // the first such limit of a QOS would let counting begin anew
			b.limits("qos " + qos + " MaxTRESRunMinsPerUser node 1000000")
		}
		s.factor = rapid.SampledFrom([]int64{1e6, 1e6, 0, 500000, 2500000}).Draw(t, "factor")
		s.ahead = rapid.Bool().Draw(t, "UsageFactorSafe")
		line := fmt.Sprint("qos high UsageFactor ", s.factor)
		if s.ahead {
			line += " safe"
		}
		b.limits(line)
		b.enforce(s.safe)
		for _, key := range []string{"lab cpu", "group cpu", "group wall", "qos high cpu", "qos high wall"} {
			s.past[key] = int64(rapid.IntRange(0, 60).Draw(t, key))
		}
		s.bench.past(s.past)
		var order []*pb.JobRecord
		b.loop.Observe(func(c state.Change) {
			for _, e := range c.Events {
				if x, ok := e.(state.JobStarted); ok {
					order = append(order, x.Job)
				}
			}
		})
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				if j := b.job(t, state.Live); j != nil {
					if s.ended[j.Id] == 0 {
						s.ended[j.Id] = b.now / 1e9
					}
					b.finish(j)
				}
			case 1:
				set()
			case 2:
				b.now += int64(rapid.IntRange(0, 900).Draw(t, "seconds")) * 1e9
			default:
				b.send(rapid.SampledFrom([]string{"u1", "u2"}).Draw(t, "u"), rapid.SampledFrom([]string{"lab", "group"}).Draw(t, "a"),
					rapid.SampledFrom([]string{"normal", "high"}).Draw(t, "qos"),
					&pb.JobSpec{NumTasks: uint32(rapid.IntRange(1, 3).Draw(t, "tasks")),
						TimeLimitS: 60 * uint32(rapid.IntRange(5, 40).Draw(t, "minutes"))})
			}
			s.tick(t)
			order = nil
			b.reasons()
			s.ran = append(s.ran, order...)
			for i, j := range order {
				later := []uint32{}
				for _, x := range order[i:] {
					later = append(later, x.Id)
				}
				if got := s.breaks(j, j.NumCpus, later); len(got) > 0 {
					t.Fatalf("job %d in %s, %s started and breaks %v", j.Id, j.Spec.Account, j.Spec.Qos, got)
				}
			}
			plan, _ := b.p.Prepare(record.Cursor{})
			for j := range b.loop.View().Jobs.All() {
				if !state.Pending(j) || !slices.ContainsFunc([]string{"Assoc", "QOS", "Max"}, func(p string) bool {
					return strings.HasPrefix(j.Reason, p)
				}) {
					continue
				}
				if got := s.breaks(j, j.Spec.NumTasks, nil); len(got) == 0 {
					t.Fatalf("job %d in %s, %s waits for %s and would break nothing", j.Id, j.Spec.Account, j.Spec.Qos, j.Reason)
				}
				// Fractions of factors may make it a second later.
				now := b.now
				b.now = max(now, min(plan.Wake-2, now/1e9+86400)*1e9)
				if got := s.breaks(j, j.Spec.NumTasks, nil); len(got) == 0 {
					t.Fatalf("job %d waits for %s, and before the next pass, at %d, it would break nothing", j.Id, j.Reason, plan.Wake)
				}
				b.now = now
			}
		}
	})
}

// tick lets the controller look for budgets that are used up, and compares whom it ends.
func (s *spending) tick(t *rapid.T) {
	want := map[uint32]bool{}
	for _, j := range s.ran {
		for limit, most := range s.limits {
			if strings.Contains(limit, "RunMins") || s.ended[j.Id] != 0 || !s.holds(limit, j) || s.factor == 0 && j.Spec.Qos == "high" {
				continue
			}
			max := int64(most) * 60
			if strings.HasSuffix(limit, "GrpWall") {
				max = int64(most)
			}
			if used, _ := s.reads(limit, j, nil); used >= max {
				want[j.Id] = true
			}
		}
	}
	s.do(reactor.Tick{})
	for _, r := range s.ran {
		if j := s.loop.View().Jobs.Get(r.Id); s.ended[r.Id] == 0 && want[r.Id] != (j.State == pb.JobState_JOB_TIMEOUT) {
			t.Fatalf("job %d in %s, %s is %v, out of budget: %v", j.Id, j.Spec.Account, j.Spec.Qos, j.State, want[r.Id])
		}
	}
	for id := range want {
		s.ended[id] = s.now / 1e9
	}
}

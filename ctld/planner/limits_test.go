package planner

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/explain"
	"github.com/sluice-hpc/sluice/ctld/journal"
	"github.com/sluice-hpc/sluice/ctld/loop"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/reactor/accounts"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/record"
	"pgregory.net/rapid"
)

// limitBench is a cluster of three nodes with four CPUs each that enforces limits. Accounts: group, and lab below it; users u1 and u2 are
// in both; QOS normal and high.
func limitBench(t rapid.TB) *bench {
	b := &bench{t: t, now: 1000e9}
	clock := func() time.Time { return time.Unix(0, b.now) }
	cfg := config(3)
	cfg.Settings.EnforceAssocs, cfg.Settings.EnforceLimits = true, true
	b.store = journal.NewMemory()
	b.loop = loop.New(b.store, state.New(cfg, "c", 1), clock, discard())
	b.p = New(b.loop, record.Params{Weights: record.Weights{Basic: true}}, clock, discard())
	b.loop.Observe(b.p.Changed)
	for i := range 3 {
		b.do(hello(fmt.Sprintf("n%d", i+1)))
	}
	b.change(&pb.ChangePolicyRequest{Names: []string{"group"}})
	b.change(&pb.ChangePolicyRequest{Names: []string{"lab"}, Set: []*pb.PolicySetting{{Name: "Parent", Words: []string{"group"}}}})
	b.change(&pb.ChangePolicyRequest{Entity: pb.PolicyEntity_POLICY_QOS, Names: []string{"high"}})
	b.change(&pb.ChangePolicyRequest{Entity: pb.PolicyEntity_POLICY_USER, Names: []string{"u1", "u2"}, Accounts: []string{"group", "lab"},
		Set: []*pb.PolicySetting{{Name: "QOS", Words: []string{"high", "normal"}}}})
	return b
}

func (b *bench) change(r *pb.ChangePolicyRequest) {
	if p, ok := b.do(accounts.Change{User: "root", Operator: true, Request: r}).(*pb.Problem); ok {
		b.t.Fatalf("%v: %v", r, p)
	}
}

// limits sets a number of an account, a user (in an account, or in all) or a QOS: "account lab MaxJobs 3", "qos high GrpTRES cpu 4",
// "user u1@lab MaxJobs 1", "qos high UsageFactor 2000000 safe" (with UsageFactorSafe).
func (b *bench) limits(lines ...string) {
	for _, line := range lines {
		line, safe := strings.CutSuffix(line, " safe")
		w := strings.Fields(line)
		r := &pb.ChangePolicyRequest{Verb: pb.PolicyVerb_POLICY_MODIFY, Names: []string{w[1]}}
		switch name, account, _ := strings.Cut(w[1], "@"); w[0] {
		case "qos":
			r.Entity = pb.PolicyEntity_POLICY_QOS
		case "user":
			r.Entity, r.Names = pb.PolicyEntity_POLICY_USER, []string{name}
			if account != "" {
				r.Accounts = []string{account}
			}
		}
		v := &pb.PolicyValue{Name: w[2]}
		if len(w) > 4 {
			v.Tres = w[3]
		}
		_, _ = fmt.Sscan(w[len(w)-1], &v.Value)
		r.Set = []*pb.PolicySetting{{Name: w[2], Values: []*pb.PolicyValue{v}}}
		if safe {
			r.Set = append(r.Set, &pb.PolicySetting{Name: "Flags", Words: []string{"UsageFactorSafe"}})
		}
		b.change(r)
	}
}

// send submits a job as a user; the refusal's first word, where there is one.
func (b *bench) send(user, account, qos string, spec *pb.JobSpec) string {
	spec.Name, spec.Uid, spec.User, spec.Account, spec.Qos = "job", 1000+uint32(user[1]-'0'), user, account, qos
	j, p := admit.Job(b.loop.View(), spec, "")
	if p != nil {
		b.t.Fatal(p)
	}
	out, err := b.loop.Turn(reactor.Submit{Job: j})
	if err != nil {
		b.t.Fatal(err)
	}
	if p, ok := out[0].(*pb.Problem); ok {
		return p.Lead
	}
	return ""
}

// reasons are the states of all jobs, by id: "R", or why they wait.
func (b *bench) reasons() (out []string) {
	b.apply()
	if b.plan != nil {
		b.do(*b.plan)
	}
	for j := range b.loop.View().Jobs.All() {
		if state.Live(j) {
			out = append(out, "R")
		} else {
			out = append(out, j.Reason)
		}
	}
	if err := b.loop.View().Check(); err != nil {
		b.t.Fatal(err)
	}
	return out
}

// limitsNamed are the limits of a job, written out.
func (m *mirror) limitsNamed(j *record.Job) (out []string) {
	for at, list := range append(slices.Clone(j.PartLimits), j.Limits) {
		for _, i := range list {
			out = append(out, fmt.Sprintf("%d %+v", at, m.limits.list[i]))
		}
	}
	return out
}

// TestLimits: which of several equal jobs start, and the reasons of the others, which are Slurm's.
func TestLimits(t *testing.T) {
	two := &pb.JobSpec{NumTasks: 2, TimeLimitS: 600}
	for _, tt := range []struct {
		limits string // with commas between them
		qos    string // of the jobs
		jobs   string // user@account of each
		want   string
	}{
		{"", "", "u1@lab u1@lab u2@lab", "R R R"},
		{"account lab MaxJobs 1", "", "u1@lab u1@lab u2@lab", "R AssocMaxJobsLimit R"},
		{"account group MaxJobs 1", "", "u1@lab u1@lab u1@group", "R AssocMaxJobsLimit R"}, // inherited, of each user's association
		{"user u1@lab MaxJobs 0", "", "u1@lab u1@group u2@lab", "AssocMaxJobsLimit R R"},
		{"account group GrpJobs 2", "", "u1@lab u2@lab u1@group", "R R AssocGrpJobsLimit"},
		{"account lab GrpTRES cpu 5", "", "u1@lab u2@lab u1@lab u1@group", "R R AssocGrpCpuLimit R"},
		{"account group GrpTRES mem 250", "", "u1@lab u2@lab", "R AssocGrpMemLimit"},
		{"account root GrpTRES node 1", "", "u1@lab u2@lab", "R AssocGrpNodeLimit"},
		{"account lab MaxTRESPerJob cpu 1", "", "u1@lab u1@group", "AssocMaxCpuPerJobLimit R"},
		{"account lab MaxTRESPerJob mem 150", "", "u1@lab u1@group", "AssocMaxMemPerJob R"},
		{"account lab MaxWall 300", "", "u1@lab u1@group", "AssocMaxWallDurationPerJobLimit R"},
		{"qos normal GrpJobs 1", "", "u1@lab u2@group", "R QOSGrpJobsLimit"},
		{"qos normal GrpTRES cpu 3", "", "u1@lab u2@group", "R QOSGrpCpuLimit"},
		{"qos normal MaxJobsPerUser 1", "", "u1@lab u1@group u2@lab", "R QOSMaxJobsPerUserLimit R"},
		{"qos normal MaxTRESPerUser cpu 3", "", "u1@lab u1@group u2@lab", "R QOSMaxCpuPerUserLimit R"},
		{"qos normal MaxTRESPerUser mem 300", "", "u1@lab u1@group", "R QOSMaxMemoryPerUser"},
		{"qos normal MaxTRESPerJob cpu 1", "", "u1@lab", "QOSMaxCpuPerJobLimit"},
		{"qos normal MaxJobsPerAccount 1", "", "u1@lab u2@lab u1@group", "R MaxJobsPerAccount R"}, // group's own jobs
		{"qos normal MaxTRESPerAccount cpu 3", "", "u1@group u2@group u2@lab", "R MaxCpuPerAccount R"},
		{"qos normal MaxTRESPerAccount mem 300", "", "u1@lab u2@lab", "R MaxMemoryPerAccount"},
		{"qos high MaxJobsPerAccount 0", "", "u1@lab", "R"},
		{"account lab MaxTRESMinsPerJob cpu 20", "", "u1@lab", "R"}, // two CPUs for ten minutes
		{"account lab MaxTRESMinsPerJob cpu 19", "", "u1@lab u1@group", "AssocMaxCpuMinutesPerJobLimit R"},
		{"account lab MaxTRESMinsPerJob mem 1999", "", "u1@lab", "AssocMaxMemMinutesPerJob"},
		{"account lab MaxTRESMinsPerJob mem 2000", "", "u1@lab", "R"},
		{"account lab MaxTRESMinsPerJob node 9", "", "u1@lab", "AssocMaxNodeMinutesPerJob"},
		{"account lab MaxTRESMinsPerJob cpu 4611686018427387904", "", "u1@lab", "R"},
		{"qos normal MaxTRESMinsPerJob cpu 19", "", "u1@lab", "QOSMaxCpuMinutesPerJobLimit"},
		{"qos normal MaxTRESMinsPerJob mem 1", "", "u1@lab", "QOSMaxMemoryMinutesPerJob"},
		{"account lab MaxTRESMinsPerJob cpu 1,qos normal MaxTRESMinsPerJob cpu 20", "", "u1@lab", "R"},
		{"qos normal MaxWall 300", "", "u1@lab", "QOSMaxWallDurationPerJobLimit"},
		// A limit of the QOS overrides the same limit of associations.
		{"account lab MaxJobs 1,qos high MaxJobsPerUser 2", "high", "u1@lab u1@lab u1@lab", "R R QOSMaxJobsPerUserLimit"},
		{"account lab GrpTRES cpu 2,qos high GrpTRES cpu 4", "high", "u1@lab u1@lab u1@lab", "R R QOSGrpCpuLimit"},
		{"account lab GrpTRES cpu 2,qos high GrpTRES mem 4000", "high", "u1@lab u1@lab", "R AssocGrpCpuLimit"},
		{"account lab GrpTRES cpu 2,qos high GrpTRES cpu 4", "", "u1@lab u1@lab", "R AssocGrpCpuLimit"},
		{"account lab GrpTRES energy 1", "", "u1@lab", "R"}, // nobody counts it
	} {
		b := limitBench(t)
		if tt.limits != "" {
			b.limits(strings.Split(tt.limits, ",")...)
		}
		for _, who := range strings.Fields(tt.jobs) {
			user, account, _ := strings.Cut(who, "@")
			b.send(user, account, tt.qos, state.CloneSpec(two))
		}
		if got := strings.Join(b.reasons(), " "); got != tt.want {
			t.Errorf("%s; %s: %s, want %s", tt.limits, tt.jobs, got, tt.want)
		}
	}
}

// update changes a job; the refusal's first word, where there is one.
func (b *bench) update(caller reactor.Caller, id, key, value string) string {
	out := b.do(reactor.UpdateJob{Caller: caller, IDs: []string{id}, Set: []*pb.KeyValue{{Key: key, Value: value}}})
	for _, o := range out.(reactor.Outcomes).List {
		if o.Problem != nil {
			return o.Problem.Lead
		}
	}
	return ""
}

// TestUpdatesKeepLimits: a job is not moved to where there are too many already; it stays where it counts.
func TestUpdatesKeepLimits(t *testing.T) {
	b := limitBench(t)
	b.limits("account lab MaxSubmitJobs 2", "qos high MaxSubmitJobsPerUser 1")
	for _, to := range []string{"lab", "lab", "group"} {
		b.send("u1", to, "", &pb.JobSpec{Hold: true})
	}
	u1 := reactor.Caller{UID: 1001}
	for _, tt := range []struct {
		caller               reactor.Caller
		id, key, value, want string
	}{
		{u1, "3", "Account", "lab", "AssocMaxSubmitJobLimit"},
		{u1, "1", "QOS", "high", ""}, // in the account it counts already
		{u1, "2", "QOS", "high", "QOSMaxSubmitJobPerUserLimit"},
		{u1, "1", "NumTasks", "2", ""},
		{operator, "3", "Account", "lab", ""},
	} {
		if got := b.update(tt.caller, tt.id, tt.key, tt.value); got != tt.want {
			t.Errorf("%s %s=%s: %q, want %q", tt.id, tt.key, tt.value, got, tt.want)
		}
	}
	b.reasons()
}

// TestExplainLimits: sluice explain says whose limit it is, and the figures.
func TestExplainLimits(t *testing.T) {
	for limit, want := range map[string]string{
		"account group GrpTRES cpu 3":     "account group uses 2 of 3 cpu, this needs 2 more (AssocGrpCpuLimit)",
		"qos normal MaxJobsPerUser 1":     "QOS normal, user u1 uses 1 of 1 running jobs, this needs 1 more (QOSMaxJobsPerUserLimit)",
		"user u1@lab MaxTRESPerJob cpu 1": "user u1 in account lab allows a job 1 cpu, this needs 2 (AssocMaxCpuPerJobLimit)",
		"user u1@lab MaxWall 300": "user u1 in account lab allows jobs of 00:05:00, this is longer " +
			"(AssocMaxWallDurationPerJobLimit)",
		"user u1@lab MaxTRESMinsPerJob cpu 9": "user u1 in account lab allows a job 9 minutes of cpu, this needs 20 until its time limit " +
			"(AssocMaxCpuMinutesPerJobLimit)",
		"qos normal MaxTRESPerAccount cpu 3": "QOS normal, account lab uses 2 of 3 cpu, this needs 2 more (MaxCpuPerAccount)",
		"account lab MaxSubmitJobs 2":        "",
		"account group GrpTRES gres/gpu 0":   "",
		"account group GrpTRES cpu 1000000":  "",
	} {
		b := limitBench(t)
		for range 2 {
			b.send("u1", "lab", "", &pb.JobSpec{NumTasks: 2, TimeLimitS: 600})
		}
		b.apply()
		b.limits(limit)
		b.send("u1", "lab", "", &pb.JobSpec{NumTasks: 2, TimeLimitS: 600, Hold: limit == "account lab MaxSubmitJobs 2"})
		b.finish(b.loop.View().Jobs.Get(2))
		b.reasons()
		v := b.loop.View()
		got := ""
		for j := range v.Jobs.All() {
			if state.Pending(j) {
				got = explain.Waiting(v, j, NewAdvisor(record.Params{Weights: record.Weights{Basic: true}}).Why)
			}
		}
		if !strings.Contains(got, want) || want == "" && strings.Contains(got, "this needs") {
			t.Errorf("%s: %q, want %q", limit, got, want)
		}
	}
}

// TestLimitsAfterARestart: use is counted when the rows are loaded.
func TestLimitsAfterARestart(t *testing.T) {
	b := limitBench(t)
	for range 3 {
		b.send("u1", "lab", "high", &pb.JobSpec{NumTasks: 2})
	}
	b.reasons()
	cfg := config(3)
	cfg.Settings.EnforceAssocs, cfg.Settings.EnforceLimits = true, true
	v, err := state.Load(cfg, b.store, "c", 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Check(); err != nil {
		t.Error(err)
	}
	if u := v.AssocUsed(v.Policy().Assoc("", "group", "").Id); u.Jobs != 3 || u.TRES.Get("cpu") != 6 {
		t.Errorf("%+v", u)
	}
}

// TestLimitsChangeAtOnce: a limit that is raised lets the next job start; the end of a job does, too.
func TestLimitsChangeAtOnce(t *testing.T) {
	b := limitBench(t)
	b.limits("account lab GrpJobs 1")
	for range 3 {
		b.send("u1", "lab", "", &pb.JobSpec{})
	}
	if got := strings.Join(b.reasons(), " "); got != "R AssocGrpJobsLimit AssocGrpJobsLimit" {
		t.Fatal(got)
	}
	b.limits("account lab GrpJobs 2")
	if got := strings.Join(b.reasons(), " "); got != "R R AssocGrpJobsLimit" {
		t.Fatal(got)
	}
	b.finish(b.loop.View().Jobs.Get(1))
	if got := b.reasons(); got[2] != "R" {
		t.Fatal(got)
	}
}

func (b *bench) finish(j *pb.JobRecord) {
	for _, a := range j.Alloc {
		if !a.Ended {
			b.do(reactor.StepReports{Node: a.Node, Steps: []*pb.StepReport{{
				Key:   &pb.StepKey{JobId: j.Id, Attempt: j.Attempt, Epoch: j.Epoch, Step: pb.BatchStep},
				Phase: pb.StepPhase_STEP_ENDED, Exit: &pb.ExitRecord{Verdict: "exited"}}}})
		}
	}
}

// TestSubmitLimits: jobs that wait count, each task of an array as one; with DenyOnLimit what could never start is refused.
func TestSubmitLimits(t *testing.T) {
	flags := func(b *bench) {
		b.change(&pb.ChangePolicyRequest{Verb: pb.PolicyVerb_POLICY_MODIFY, Entity: pb.PolicyEntity_POLICY_QOS, Names: []string{"high"},
			Set: []*pb.PolicySetting{{Name: "Flags", Words: []string{"DenyOnLimit"}}}})
	}
	for _, tt := range []struct {
		limit, qos string
		spec       *pb.JobSpec
		want       string // of one job after another
	}{
		{"account lab MaxSubmitJobs 2", "", &pb.JobSpec{}, "ok ok AssocMaxSubmitJobLimit"},
		{"account group GrpSubmitJobs 1", "", &pb.JobSpec{}, "ok AssocGrpSubmitJobsLimit"},
		{"account lab MaxSubmitJobs 5", "", &pb.JobSpec{Array: "0-2"}, "ok AssocMaxSubmitJobLimit"},
		{"qos high MaxSubmitJobsPerUser 1", "high", &pb.JobSpec{}, "ok QOSMaxSubmitJobPerUserLimit"},
		{"qos high GrpSubmitJobs 1", "high", &pb.JobSpec{}, "ok QOSGrpSubmitJobsLimit"},
		{"qos high GrpSubmitJobs 1", "normal", &pb.JobSpec{}, "ok ok"},
		{"qos high MaxTRESPerJob cpu 1", "high", &pb.JobSpec{NumTasks: 2}, "QOSMaxCpuPerJobLimit"},
		{"qos high MaxTRESPerUser cpu 1", "high", &pb.JobSpec{NumTasks: 2}, "QOSMaxCpuPerUserLimit"},
		{"qos high MaxTRESPerJob cpu 2", "high", &pb.JobSpec{PnMinCpus: 4}, "ok ok"}, // they wait
		{"qos high MaxTRESPerUser cpu 2", "high", &pb.JobSpec{PnMinCpus: 4}, "ok ok"},
		{"qos high MaxTRESMinsPerJob cpu 20", "high", &pb.JobSpec{PnMinCpus: 4, TimeLimitS: 600}, "ok ok"},
		{"qos high GrpTRES cpu 2", "high", &pb.JobSpec{PnMinCpus: 4}, "ok ok"},
		{"qos high MinTRESPerJob cpu 4", "high", &pb.JobSpec{PnMinCpus: 4}, "ok ok"},
		{"qos high MaxSubmitJobsPerAccount 1", "high", &pb.JobSpec{}, "ok MaxSubmitJobsPerAccount"},
		{"qos high MaxTRESMinsPerJob cpu 3", "high", &pb.JobSpec{NumTasks: 2, TimeLimitS: 120}, "QOSMaxCpuMinutesPerJobLimit"},
		{"qos high MaxTRESMinsPerJob cpu 4", "high", &pb.JobSpec{NumTasks: 2, TimeLimitS: 120}, "ok"},
		{"qos high MaxTRESMinsPerJob cpu 4", "high", &pb.JobSpec{TimeLimitS: pb.Unlimited}, "QOSMaxCpuMinutesPerJobLimit"},
		{"qos high GrpTRESMins cpu 3", "high", &pb.JobSpec{NumTasks: 2, TimeLimitS: 120}, "QOSGrpCPUMinutesLimit"},
		{"qos high GrpTRESMins cpu 4", "high", &pb.JobSpec{NumTasks: 2, TimeLimitS: 120}, "ok ok"},
		{"qos high GrpTRESRunMins cpu 3", "high", &pb.JobSpec{NumTasks: 2, TimeLimitS: 120}, "QOSGrpCPURunMinutesLimit"},
		{"qos high GrpWall 60", "high", &pb.JobSpec{NumTasks: 2, TimeLimitS: 120}, "QOSGrpWallLimit"},
		{"account lab GrpTRESMins cpu 0", "normal", &pb.JobSpec{NumTasks: 2, TimeLimitS: 120}, "ok ok"},
		{"qos high MaxWall 60", "high", &pb.JobSpec{TimeLimitS: 120}, "QOSMaxWallDurationPerJobLimit"},
		{"qos high MaxWall 60", "high", &pb.JobSpec{TimeLimitS: pb.Unlimited}, "QOSMaxWallDurationPerJobLimit"},
		{"qos high MaxWall 60", "high", &pb.JobSpec{}, "ok ok"}, // it gets that much
		{"account lab GrpTRES cpu 1", "high", &pb.JobSpec{NumTasks: 2}, "AssocGrpCpuLimit"},
		{"account lab GrpTRES cpu 1", "normal", &pb.JobSpec{NumTasks: 2}, "ok ok"},
	} {
		b := limitBench(t)
		flags(b)
		b.limits(tt.limit)
		var got []string
		for range strings.Fields(tt.want) {
			why := b.send("u1", "lab", tt.qos, state.CloneSpec(tt.spec))
			if why == "" {
				why = "ok"
			}
			got = append(got, why)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %v, want %s", tt.limit, got, tt.want)
		}
		b.reasons()
	}
}

// breaks are the limits that a job would break, counted from nothing by the jobs that run, but for those that started later: the test's own
// reading of them.
func breaks(v *state.View, j *pb.JobRecord, need map[string]uint64, later []uint32) (out []string) {
	p := v.Policy()
	use := func(of func(*pb.JobRecord) bool) map[string]uint64 {
		sum := map[string]uint64{}
		for x := range v.Jobs.All() {
			if state.Live(x) && of(x) && !slices.Contains(later, x.Id) {
				sum["jobs"]++
				sum["cpu"] += uint64(x.NumCpus)
			}
		}
		return sum
	}
	check := func(values []*pb.PolicyValue, name, what string, used map[string]uint64) bool {
		for _, val := range values {
			if val.Name == name && (val.Tres == what || val.Tres == "" && what == "jobs") {
				if used[what]+need[what] > val.Value {
					out = append(out, name)
				}
				return true
			}
		}
		return false
	}
	sameUser := func(x *pb.JobRecord) bool { return x.Spec.User == j.Spec.User }
	sameQOS := func(x *pb.JobRecord) bool { return x.Spec.Qos == j.Spec.Qos }
	q := p.QOS(j.Spec.Qos).Values
	qosJobs := check(q, "GrpJobs", "jobs", use(sameQOS))
	qosCPU := check(q, "GrpTRES", "cpu", use(sameQOS))
	perUser := check(q, "MaxJobsPerUser", "jobs", use(func(x *pb.JobRecord) bool { return sameUser(x) && sameQOS(x) }))
	check(q, "MaxTRESPerUser", "cpu", use(func(x *pb.JobRecord) bool { return sameUser(x) && sameQOS(x) }))
	sameAccount := use(func(x *pb.JobRecord) bool { return x.Spec.Account == j.Spec.Account && sameQOS(x) })
	check(q, "MaxJobsPerAccount", "jobs", sameAccount)
	check(q, "MaxTRESPerAccount", "cpu", sameAccount)
	for _, val := range q {
		if val.Name == "MaxTRESMinsPerJob" && uint64(j.Spec.NumTasks)*uint64(j.TimeLimitS) > 60*val.Value {
			out = append(out, val.Name)
		}
	}
	below := []string{"lab"}
	if j.Spec.Account == "group" {
		below = []string{"group"}
	}
	own := use(func(x *pb.JobRecord) bool { return sameUser(x) && x.Spec.Account == j.Spec.Account })
	a := p.Assoc(j.Spec.User, j.Spec.Account, "")
	for up := range p.Chain(a) {
		if !perUser && check(up.Values, "MaxJobs", "jobs", own) {
			break
		}
	}
	of := own
	for up := range p.Chain(a) {
		if up.User == "" {
			if up.Account != "lab" {
				below = []string{"lab", "group"}
			}
			of = use(func(x *pb.JobRecord) bool { return slices.Contains(below, x.Spec.Account) })
		}
		if !qosJobs {
			check(up.Values, "GrpJobs", "jobs", of)
		}
		if !qosCPU {
			check(up.Values, "GrpTRES", "cpu", of)
		}
	}
	return out
}

// TestNoLimitIsExceeded: for any limits and any submissions, no job starts that breaks a limit, and none waits for a limit that it would
// keep.
func TestNoLimitIsExceeded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := limitBench(t)
		user, account := rapid.SampledFrom([]string{"u1", "u2"}), rapid.SampledFrom([]string{"lab", "group"})
		number := rapid.IntRange(0, 5)
		set := func() {
			b.limits(rapid.SampledFrom([]func() string{
				func() string { return fmt.Sprint("account ", account.Draw(t, "a"), " MaxJobs ", number.Draw(t, "n")) },
				func() string { return fmt.Sprint("account ", account.Draw(t, "a"), " GrpJobs ", number.Draw(t, "n")) },
				func() string {
					return fmt.Sprint("account ", account.Draw(t, "a"), " GrpTRES cpu ", number.Draw(t, "n"))
				},
				func() string { return fmt.Sprint("account root GrpTRES cpu ", number.Draw(t, "n")+3) },
				func() string {
					return fmt.Sprint("user ", user.Draw(t, "u"), "@", account.Draw(t, "a"), " GrpTRES cpu ", number.Draw(t, "n"))
				},
				func() string { return fmt.Sprint("qos high MaxJobsPerUser ", number.Draw(t, "n")) },
				func() string { return fmt.Sprint("qos high MaxJobsPerAccount ", number.Draw(t, "n")) },
				func() string { return fmt.Sprint("qos normal MaxTRESPerAccount cpu ", number.Draw(t, "n")) },
				func() string { return fmt.Sprint("qos high MaxTRESMinsPerJob cpu ", 10*number.Draw(t, "n")) },
				func() string { return fmt.Sprint("qos high GrpTRES cpu ", number.Draw(t, "n")) },
				func() string { return fmt.Sprint("qos normal GrpJobs ", number.Draw(t, "n")) },
				func() string { return fmt.Sprint("qos normal MaxTRESPerUser cpu ", number.Draw(t, "n")) },
			}).Draw(t, "limit")())
		}
		for range rapid.IntRange(0, 4).Draw(t, "limits") {
			set()
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
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				if j := b.job(t, state.Live); j != nil {
					b.finish(j)
				}
			case 1:
				set()
			default:
				limitS := 60 * uint32(rapid.IntRange(5, 20).Draw(t, "minutes"))
				b.send(user.Draw(t, "u"), account.Draw(t, "a"), rapid.SampledFrom([]string{"normal", "high"}).Draw(t, "qos"),
					&pb.JobSpec{NumTasks: uint32(rapid.IntRange(1, 3).Draw(t, "tasks")), TimeLimitS: limitS,
						Array: rapid.SampledFrom([]string{"", "", "0-2"}).Draw(t, "array")})
			}
			order = nil
			b.reasons()
			for i, id := range order {
				j := b.loop.View().Jobs.Get(id)
				if got := breaks(b.loop.View(), j, nil, order[i+1:]); len(got) > 0 {
					t.Fatalf("job %d of %s in %s, %s runs and breaks %v", j.Id, j.Spec.User, j.Spec.Account, j.Spec.Qos, got)
				}
			}
			for j := range b.loop.View().Jobs.All() {
				if state.Pending(j) && (strings.HasPrefix(j.Reason, "Assoc") || strings.HasPrefix(j.Reason, "QOS") ||
					strings.HasPrefix(j.Reason, "Max")) {
					need := map[string]uint64{"jobs": 1, "cpu": uint64(j.Spec.NumTasks)}
					if got := breaks(b.loop.View(), j, need, nil); len(got) == 0 {
						t.Fatalf("job %d of %s in %s, %s waits for %s and would break nothing", j.Id, j.Spec.User, j.Spec.Account,
							j.Spec.Qos, j.Reason)
					}
				}
			}
		}
	})
}

// TestFactorsOfUsersAndQOS: the priority has the fair-share factor of the user in the account, and the priorities of QOS and association
// (its own, or that of an account above it) as parts of the highest; a job of a higher priority starts first.
func TestFactorsOfUsersAndQOS(t *testing.T) {
	b := limitBench(t)
	b.limits("qos high Priority 20", "qos normal Priority 5", "account group Priority 8", "user u2@lab Priority 2")
	b.loop.View().Settings.PriorityBasic = false // before there is any job
	b.p.params.Weights = record.Weights{FairShare: 1000, QOS: 100, Assoc: 10}
	shares := []record.Share{{Account: "lab", User: "u1", Factor: 0.25}, {Account: "lab", User: "u2", Factor: 0.5}}
	b.p.SetShares(shares)
	g := NewAdvisor(b.p.params)
	g.SetShares(shares)
	for _, s := range []string{"u1 normal", "u2 normal", "u1 high"} {
		user, qos, _ := strings.Cut(s, " ")
		b.send(user, "lab", qos, &pb.JobSpec{NumTasks: 12})
	}
	v := b.loop.View()
	var jobs []*pb.JobRecord
	for j := range v.Jobs.All() {
		jobs = append(jobs, j)
	}
	parts, _ := g.Priorities(v, jobs, []string{"debug", "debug", "debug"})
	var got []string
	for _, p := range parts {
		got = append(got, fmt.Sprintf("%g+%g+%g", p.FairShare.Value(), p.QOS.Value(), p.Assoc.Value()))
	}
	if want := []string{"250+25+10", "500+25+2.5", "250+100+10"}; !slices.Equal(got, want) {
		t.Errorf("fair share, QOS and association: %v, want %v", got, want)
	}
	if plan, _ := b.p.Prepare(record.Cursor{}); len(plan.Start) != 1 || plan.Start[0].Job.User != "u2" {
		t.Errorf("starts %v, the job of u2 has the highest priority", starts(plan))
	}
}

// TestDefaultTime: a job without --time gets that of its association, at most what its partition and its limits allow.
func TestDefaultTime(t *testing.T) {
	for _, tt := range []struct {
		limits string // with commas between them
		spec   *pb.JobSpec
		want   uint32
	}{
		{"account group MaxJobs 1", &pb.JobSpec{}, 600}, // of the partition
		{"account group DefaultTime 300", &pb.JobSpec{}, 300},
		{"account group DefaultTime 300,user u1@lab DefaultTime 900", &pb.JobSpec{}, 900},
		{"account group DefaultTime 300,user u1@lab DefaultTime 0", &pb.JobSpec{}, 600},
		{"account group DefaultTime 300", &pb.JobSpec{TimeLimitS: 120}, 120},
		{"account group DefaultTime 300", &pb.JobSpec{TimeMinS: 420}, 420},
		{"account group DefaultTime 864000", &pb.JobSpec{}, 3600}, // the partition's MaxTime
		{"account group DefaultTime 900,qos normal MaxWall 240", &pb.JobSpec{}, 240},
		{"account group DefaultTime 900,qos normal MaxWall 1200", &pb.JobSpec{}, 900},
	} {
		b := limitBench(t)
		b.limits(strings.Split(tt.limits, ",")...)
		b.do(reactor.UpdatePartition{Caller: operator, Name: "debug", Set: []*pb.KeyValue{{Key: "MaxTime", Value: "60"}}})
		b.send("u1", "lab", "", tt.spec)
		if j := b.loop.View().Jobs.Get(1); j.TimeLimitS != tt.want || j.Spec.TimeLimitS != tt.want && tt.want != 600 {
			t.Errorf("%s: %d and %d, want %d", tt.limits, j.TimeLimitS, j.Spec.TimeLimitS, tt.want)
		}
	}
}

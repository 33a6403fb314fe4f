package planner

import (
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/explain"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/record"
	"pgregory.net/rapid"
)

// hours sets LimitHours of an account, a user or a QOS.
func (b *bench) hours(of, hours string) {
	kind, name, _ := strings.Cut(of, " ")
	r := &pb.ChangePolicyRequest{Verb: pb.PolicyVerb_POLICY_MODIFY, Names: []string{name},
		Entity: map[string]pb.PolicyEntity{"account": pb.PolicyEntity_POLICY_ACCOUNT, "user": pb.PolicyEntity_POLICY_USER,
			"qos": pb.PolicyEntity_POLICY_QOS}[kind],
		Set: []*pb.PolicySetting{{Name: "LimitHours", Words: []string{hours}}}}
	b.change(r)
}

// at sets the clock to a number of hours after 1970-01-01, a Thursday, and ticks.
func (b *bench) at(hour float64) {
	b.now = int64(hour * 3600e9)
	b.do(reactor.Tick{})
}

// TestLimitHours: a limit holds jobs back by day and not at night. Running jobs continue when the day begins.
func TestLimitHours(t *testing.T) {
	for _, tt := range []struct {
		of, limit    string
		other        string // a second limit, which has no hours
		night, day   string // reasons of four jobs that are submitted at once
		again, later string // of what was held by day: after some minutes, and in the evening
	}{
		{"account group", "account group GrpTRES cpu 2", "", "R R R R", "R AssocGrpCpuLimit AssocGrpCpuLimit AssocGrpCpuLimit",
			"R AssocGrpCpuLimit AssocGrpCpuLimit AssocGrpCpuLimit", "R R R R"},
		{"account group", "account group MaxJobs 1", "", "R R R R", "R AssocMaxJobsLimit R AssocMaxJobsLimit",
			"R AssocMaxJobsLimit R AssocMaxJobsLimit", "R R R R"}, // inherited with its hours
		{"user u1", "user u1 MaxJobs 0", "account group MaxJobs 1", "R AssocMaxJobsLimit R AssocMaxJobsLimit",
			"AssocMaxJobsLimit AssocMaxJobsLimit R AssocMaxJobsLimit", "AssocMaxJobsLimit AssocMaxJobsLimit R AssocMaxJobsLimit",
			"R AssocMaxJobsLimit R AssocMaxJobsLimit"}, // as if unset: that of the account counts
		{"qos normal", "qos normal GrpJobs 3", "account lab GrpJobs 1", "R AssocGrpJobsLimit AssocGrpJobsLimit AssocGrpJobsLimit",
			"R R R QOSGrpJobsLimit", "R R R QOSGrpJobsLimit", "R R R AssocGrpJobsLimit"},
		{"qos normal", "qos normal MaxWall 300", "", "R R R R", strings.Repeat("QOSMaxWallDurationPerJobLimit ", 4),
			strings.Repeat("QOSMaxWallDurationPerJobLimit ", 4), "R R R R"},
		{"qos normal", "qos normal MaxTRESMinsPerJob cpu 1", "", strings.Repeat("QOSMaxCpuMinutesPerJobLimit ", 4),
			strings.Repeat("QOSMaxCpuMinutesPerJobLimit ", 4), strings.Repeat("QOSMaxCpuMinutesPerJobLimit ", 4),
			strings.Repeat("QOSMaxCpuMinutesPerJobLimit ", 4)}, // over time: at all hours
	} {
		begin := func() *bench {
			b := limitBench(t)
			b.limits(tt.limit)
			if tt.other != "" {
				b.limits(tt.other)
			}
			b.hours(tt.of, "Mon-Fri 08:00-20:00")
			return b
		}
		send := func(b *bench) {
			for _, user := range []string{"u1", "u1", "u2", "u2"} {
				b.send(user, "lab", "", &pb.JobSpec{NumTasks: 2, TimeLimitS: 600})
			}
		}
		check := func(b *bench, when, want string) {
			t.Helper()
			if got := strings.Join(b.reasons(), " "); got != strings.TrimSpace(want) {
				t.Errorf("%s, %s: %s, want %s", tt.limit, when, got, want)
			}
		}
		night := begin()
		night.at(7.9)
		send(night)
		check(night, "at night", tt.night)
		if night.at(8); tt.night == "R R R R" {
			check(night, "in the morning", tt.night)
		}
		day := begin()
		day.at(8)
		send(day)
		check(day, "by day", tt.day)
		day.at(8.1)
		check(day, "later", tt.again)
		day.at(20)
		check(day, "in the evening", tt.later)
	}
}

// TestHoursWakeThePlanner: when a window closes, jobs are looked at again, and not before.
func TestHoursWakeThePlanner(t *testing.T) {
	b := limitBench(t)
	b.limits("account lab MaxJobs 0")
	b.hours("account lab", "08:00-20:00")
	b.at(10)
	b.send("u1", "lab", "", &pb.JobSpec{})
	b.reasons()
	woken := func() bool {
		select {
		case <-b.p.Woken():
			return true
		default:
			return false
		}
	}
	woken()
	for hour, want := range map[int]bool{11: false, 19: false} {
		if b.at(float64(hour)); woken() != want {
			t.Errorf("woken at %d: %v", hour, !want)
		}
	}
	if b.at(20); !woken() {
		t.Error("not woken in the evening")
	}
	if got := b.reasons(); got[0] != "R" {
		t.Error(got)
	}
}

// TestExplainHours: sluice explain says until when the limit counts. DenyOnLimit refuses nothing that can start in the evening, and no job
// is cut to what is allowed by day.
func TestExplainHours(t *testing.T) {
	b := limitBench(t)
	b.limits("qos high MaxWall 300", "qos high GrpTRES cpu 1")
	b.change(&pb.ChangePolicyRequest{Verb: pb.PolicyVerb_POLICY_MODIFY, Entity: pb.PolicyEntity_POLICY_QOS, Names: []string{"high"},
		Set: []*pb.PolicySetting{{Name: "Flags", Words: []string{"DenyOnLimit"}}}})
	if why := b.send("u1", "lab", "high", &pb.JobSpec{NumTasks: 2, TimeLimitS: 60}); why != "QOSGrpCpuLimit" {
		t.Errorf("without hours: %q", why)
	}
	b.hours("qos high", "Mon-Fri 08:00-20:00")
	b.at(9)
	if why := b.send("u1", "lab", "high", &pb.JobSpec{NumTasks: 2}); why != "" {
		t.Errorf("with hours: %q", why)
	}
	b.reasons()
	v := b.loop.View()
	j := v.Jobs.Get(1)
	if j.TimeLimitS == 300 {
		t.Errorf("time limit %d", j.TimeLimitS)
	}
	got := explain.Waiting(v, j, NewAdvisor(record.Params{Weights: record.Weights{Basic: true}}).Why)
	for _, want := range []string{
		"QOS high allows jobs of 00:05:00, this is longer (QOSMaxWallDurationPerJobLimit, which counts until 1970-01-01T20:00:00Z)",
		"QOS high uses 0 of 1 cpu, this needs 2 more (QOSGrpCpuLimit, which counts until 1970-01-01T20:00:00Z)"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestHoursOfAnyTime: the hours of a limit follow the clock in any order of events, also after restarts and when the clock is set.
func TestHoursOfAnyTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := limitBench(t)
		b.limits("account lab MaxJobs 0")
		b.hours("account lab", "Mon-Fri 08:00-20:00,Sat 22:00-02:00")
		for range rapid.IntRange(1, 5).Draw(t, "moments") {
			hour := rapid.Float64Range(0, 24*14).Draw(t, "hour")
			b.at(hour)
			b.send("u1", "lab", "", &pb.JobSpec{Hold: true})
			v := b.loop.View()
			if rapid.Bool().Draw(t, "restart") {
				v, _ = state.Load(config(3), b.store, "c", 1)
				v, _ = state.Begin(v, b.now).Freeze()
			}
			if err := v.Check(); err != nil {
				t.Fatal(err)
			}
			day, of := (int(hour/24)+3)%7, hour-24*float64(int(hour/24)) // Monday is 0
			want := day < 5 && of >= 8 && of < 20 || day == 5 && of >= 22 || day == 6 && of < 2
			if now, until := v.Policy().Counts("Mon-Fri 08:00-20:00,Sat 22:00-02:00"); now != want || until <= b.now {
				t.Fatalf("day %d, %v o'clock: counts %v until %d", day, of, now, until)
			}
		}
	})
}

// TestDenyOnLimitWaitsForHours: a job is not refused by a limit that holds only until that of a QOS with hours takes its place.
func TestDenyOnLimitWaitsForHours(t *testing.T) {
	b := limitBench(t)
	b.change(&pb.ChangePolicyRequest{Verb: pb.PolicyVerb_POLICY_MODIFY, Entity: pb.PolicyEntity_POLICY_QOS, Names: []string{"high"},
		Set: []*pb.PolicySetting{{Name: "Flags", Words: []string{"DenyOnLimit"}}}})
	b.limits("qos high GrpTRES cpu 8", "account lab GrpTRES cpu 1", "qos high MaxWall 7200", "account lab MaxWall 60")
	b.hours("qos high", "20:00-08:00")
	for _, hour := range []float64{9, 21} {
		b.at(hour)
		if why := b.send("u1", "lab", "high", &pb.JobSpec{NumTasks: 2, TimeLimitS: 50}); why != "" {
			t.Errorf("at %v: %s", hour, why)
		}
	}
	if why := b.send("u1", "group", "high", &pb.JobSpec{NumTasks: 2}); why != "" {
		t.Error(why)
	}
	if got, want := strings.Join(b.reasons(), " "), "R R R"; got != want {
		t.Errorf("in the evening: %s, want %s", got, want)
	}
	b.at(33)
	b.limits("account lab MaxTRESPerJob cpu 1")
	if why := b.send("u1", "lab", "high", &pb.JobSpec{NumTasks: 2, TimeLimitS: 50}); why != "AssocMaxCpuPerJobLimit" {
		t.Errorf("a limit that the QOS has not: %q", why)
	}
}

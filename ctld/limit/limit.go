// Package limit lists the limits of associations and QOS for a job (Of), and the rest under each. Submission, the planner and the start of
// a job compare with the same list, whose length depends only on the depth of the tree of accounts, not on the number of users and
// accounts. Pure.
//
// The tables below name the limits as conf/accounts does. As in Slurm, a limit of the partition's QOS replaces the same limit of the job's
// QOS, or the other way round if the latter has the flag OverPartQOS, and a limit of either replaces the same limit of associations; Max…
// of an association is inherited, while Grp… counts the jobs of everything below it. A record's limits on running jobs may have hours
// (LimitHours); outside of these they are as if unset (state.Policy.Counts).
package limit

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/ctld/convert"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/record"
	"github.com/sluice-hpc/sluice/sched/sizing"
)

// Submit is a quantity besides TRES and those of the scheduler: the number of pending and running jobs.
const Submit = "submit"

// Group identifies the jobs whose use counts for a limit. Comparable.
type Group struct {
	Assoc, QOS uint32
	User       string // within the QOS
	Account    string // within the QOS: jobs of the account itself
	PerJob     bool   // compared with each job by itself
}

// Limit is one limit of a job.
type Limit struct {
	Group
	// What is Submit, record.LimitJobs, record.LimitWall (seconds), record.LimitShare (Most is in millionths), a TRES, record.LimitMins or
	// record.LimitSpent and a TRES (times seconds), or record.LimitEach or record.LimitLeast and a TRES (Most of the latter is negative).
	What string
	Over over
	Most int64
	// Over time: factors for a job's need in order to start, and for its use.
	Need, Use record.Factor
	Reason    string // of a job that waits for it, in Slurm's words
	Who       string // owner of the limit, for people
	UntilNS   int64  // it only applies at some hours, and now until then; 0: always
}

// row is a kind of limit. With what "" it is a vector of TRES, and reason is the beginning of the reason.
type row struct {
	setting, what, reason string
	user, account, perJob bool
	perNode, least        bool
	over                  over
	instead               string // the setting of associations that this one of the QOS replaces
}

var ofQOS = []row{
	{setting: "MaxWall", what: record.LimitWall, reason: "QOSMaxWallDurationPerJobLimit", perJob: true, instead: "MaxWall"},
	{setting: "MaxTRESPerJob", reason: "QOSMax", perJob: true, instead: "MaxTRESPerJob"},
	{setting: "UsageThreshold", what: record.LimitShare, reason: "QOSUsageThreshold", perJob: true},
	{setting: "MaxTRESPerNode", reason: "QOSMax", perJob: true, perNode: true, instead: "MaxTRESPerNode"},
	{setting: "MaxTRESMinsPerJob", reason: "QOSMax", perJob: true, over: overLimit, instead: "MaxTRESMinsPerJob"},
	{setting: "MaxSubmitJobsPerAccount", what: Submit, reason: "MaxSubmitJobsPerAccount", account: true},
	{setting: "MaxJobsPerAccount", what: record.LimitJobs, reason: "MaxJobsPerAccount", account: true},
	{setting: "MinTRESPerJob", reason: "QOSMin", perJob: true, least: true},
	{setting: "MaxTRESPerAccount", reason: "Max", account: true},
	{setting: "MaxSubmitJobsPerUser", what: Submit, reason: "QOSMaxSubmitJobPerUserLimit", user: true, instead: "MaxSubmitJobs"},
	{setting: "GrpSubmitJobs", what: Submit, reason: "QOSGrpSubmitJobsLimit", instead: "GrpSubmitJobs"},
	{setting: "MaxJobsPerUser", what: record.LimitJobs, reason: "QOSMaxJobsPerUserLimit", user: true, instead: "MaxJobs"},
	{setting: "GrpJobs", what: record.LimitJobs, reason: "QOSGrpJobsLimit", instead: "GrpJobs"},
	{setting: "MaxTRESPerUser", reason: "QOSMax", user: true},
	{setting: "MaxTRESRunMinsPerAccount", reason: "Max", account: true, over: overRunning},
	{setting: "MaxTRESRunMinsPerUser", reason: "Max", user: true, over: overRunning},
	{setting: "GrpTRES", reason: "QOSGrp", instead: "GrpTRES"},
	{setting: "GrpTRESMins", reason: "QOSGrp", over: overSpent, instead: "GrpTRESMins"},
	{setting: "GrpTRESRunMins", reason: "QOSGrp", over: overRunning, instead: "GrpTRESRunMins"},
	{setting: "GrpWall", what: record.LimitJobs, reason: "QOSGrpWallLimit", over: overSpent, instead: "GrpWall"},
}

var ofUsers = []row{
	{setting: "MaxWall", what: record.LimitWall, reason: "AssocMaxWallDurationPerJobLimit", perJob: true},
	{setting: "MaxTRESPerJob", reason: "AssocMax", perJob: true},
	{setting: "MaxTRESPerNode", reason: "AssocMax", perJob: true, perNode: true},
	{setting: "MaxTRESMinsPerJob", reason: "AssocMax", perJob: true, over: overLimit},
	{setting: "MaxSubmitJobs", what: Submit, reason: "AssocMaxSubmitJobLimit"},
	{setting: "MaxJobs", what: record.LimitJobs, reason: "AssocMaxJobsLimit"},
}

var ofAccounts = []row{
	{setting: "GrpSubmitJobs", what: Submit, reason: "AssocGrpSubmitJobsLimit"},
	{setting: "GrpJobs", what: record.LimitJobs, reason: "AssocGrpJobsLimit"},
	{setting: "GrpTRES", reason: "AssocGrp"},
	{setting: "GrpTRESMins", reason: "AssocGrp", over: overSpent},
	{setting: "GrpTRESRunMins", reason: "AssocGrp", over: overRunning},
	{setting: "GrpWall", what: record.LimitJobs, reason: "AssocGrpWallLimit", over: overSpent},
}

// Of returns the limits of a job of an association (nil: none) in a QOS and a partition.
func Of(v *state.View, a *pb.AssocRecord, qos, partition, user string) []Limit {
	return charged(v.Policy().QOS(strings.ToLower(qos)), of(v, a, inOrder(v, qos, partition), user))
}

// inOrder returns the QOS of a job: its own and its partition's, first the one whose limits replace those of the other.
func inOrder(v *state.View, qos, partition string) []*pb.QosRecord {
	own, part := v.Policy().QOS(strings.ToLower(qos)), v.PartitionQOS(partition)
	switch {
	case part == nil || part == own:
		return []*pb.QosRecord{own}
	case slices.Contains(own.GetFlags(), "OverPartQOS"):
		return []*pb.QosRecord{own, part}
	}
	return []*pb.QosRecord{part, own}
}

func of(v *state.View, a *pb.AssocRecord, qoses []*pb.QosRecord, user string) (out []Limit) {
	p := v.Policy()
	instead := map[string]bool{} // setting/TRES of associations
	var first []string           // the same of the first QOS
	for i, q := range qoses {
		for _, r := range ofQOS {
			g := Group{QOS: q.GetId(), PerJob: r.perJob}
			who := "QOS " + q.GetName()
			switch {
			case r.account && a == nil:
				continue
			case r.what == record.LimitShare && (a == nil || !slices.Contains(q.GetFlags(), "EnforceUsageThreshold")):
				continue
			case r.what == record.LimitShare:
				g.User, g.Account = user, a.Account
			case r.account:
				g.Account, who = a.Account, who+", account "+a.Account
			case r.user:
				g.User, who = user, who+", user "+user
			}
			for _, l := range r.limits(v, q.GetValues(), q.GetLimitHours(), g, who) {
				switch name := r.setting + "/" + l.vector(&r); {
				case i > 0 && slices.Contains(first, name):
					continue
				case i == 0 && len(qoses) > 1:
					first = append(first, name)
				}
				instead[r.instead+"/"+l.vector(&r)] = true
				out = append(out, l)
			}
		}
	}
	if a == nil {
		return out
	}
	keep := func(r *row, list []Limit) {
		for _, l := range list {
			if !instead[r.setting+"/"+l.vector(r)] {
				out = append(out, l)
			}
		}
	}
	for _, r := range ofUsers {
		if a.User != "" || r.perJob {
			keep(&r, r.inherited(v, a))
		}
	}
	for up := range p.Chain(a) {
		for _, r := range ofAccounts {
			keep(&r, r.limits(v, up.Values, up.LimitHours, Group{Assoc: up.Id}, name(up)))
		}
	}
	return out
}

// vector returns the TRES of a limit that is part of a vector.
func (l *Limit) vector(r *row) string {
	if r.what != "" {
		return ""
	}
	return l.tres()
}

func name(a *pb.AssocRecord) string {
	if a.User == "" {
		return "account " + a.Account
	}
	return "user " + a.User + " in account " + a.Account
}

// inherited returns the limits of a row of an association, or else of the nearest account above it.
func (r *row) inherited(v *state.View, a *pb.AssocRecord) (out []Limit) {
	for up := range v.Policy().Chain(a) {
		for _, l := range r.limits(v, up.Values, up.LimitHours, Group{Assoc: a.Id, PerJob: r.perJob}, name(a)) {
			i, found := slices.BinarySearchFunc(out, l.What, func(o Limit, what string) int { return strings.Compare(o.What, what) })
			if !found {
				out = slices.Insert(out, i, l)
			}
		}
	}
	return out
}

// limits returns the limits of a row in a record's values that apply at these hours. Limits on submissions, and on use over time, apply at
// all hours.
func (r *row) limits(v *state.View, values []*pb.PolicyValue, hours string, g Group, who string) (out []Limit) {
	if r.what == Submit || r.over != 0 {
		hours = ""
	}
	counts, untilNS := v.Policy().Counts(hours)
	if !counts {
		return nil
	}
	for _, val := range values {
		if val.Name != r.setting {
			continue
		}
		l := Limit{Group: g, What: r.what, Over: r.over, Most: int64(val.Value), Reason: r.reason, Who: who, UntilNS: untilNS}
		if r.what == "" {
			if l.What = val.Tres; !r.counts(l.What) {
				continue
			}
			l.Reason += r.suffix(l.What)
			if r.perNode {
				l.What = record.LimitEach + l.What
			}
			if r.least {
				l.What, l.Most = record.LimitLeast+l.What, -l.Most
			}
			if l.Over != 0 {
				l.Most = int64(min(val.Value, math.MaxInt64/60) * 60)
			}
		}
		out = append(out, l.overTime(v.Settings.EnforceSafe))
	}
	return out
}

// Counted reports whether limits of a TRES are supported: its use is known from the resources of jobs.
func Counted(what string) bool {
	return slices.Contains([]string{"cpu", "mem", "node"}, what) || strings.HasPrefix(what, "gres/")
}

// suffix returns the end of the reason of a limit on a TRES.
func (r *row) suffix(what string) string {
	kind, _, _ := strings.Cut(what, "/")
	noun := map[string]string{"cpu": "Cpu", "mem": "Mem", "node": "Node", "gres": "GRES"}[kind]
	per := ""
	switch {
	case r.least && kind == "cpu":
		return "CpuNotSatisfied"
	case r.over == overSpent || r.over == overRunning:
		return r.minutes(kind, noun)
	case r.over == overLimit:
		per = "MinutesPerJob"
	case r.perNode:
		per = "PerNode"
	case r.least:
	case r.perJob:
		per = "PerJob"
	case r.user:
		per = "PerUser"
	}
	if kind == "mem" && !strings.HasPrefix(r.reason, "Assoc") && r.reason != "QOSGrp" {
		noun = "Memory"
	}
	switch {
	case r.account:
		return noun + "PerAccount"
	case r.over != 0 && kind != "cpu", r.perNode, r.least:
		return noun + per
	}
	if kind == "gres" || kind == "mem" && per != "" {
		return noun + per
	}
	return noun + per + "Limit"
}

// OverTime reports whether the rest under a limit changes with time.
func (l *Limit) OverTime() bool { return l.Over > overLimit }

// Freed returns the increase of the rest under a limit over time after some seconds, if nothing starts or ends meanwhile.
func (l *Limit) Freed(v *state.View, nowS, seconds int64) int64 {
	return l.Used(v, nowS) - l.Used(v, nowS+seconds)
}

// Used returns the present use under a limit; nowS is the time.
func (l *Limit) Used(v *state.View, nowS int64) int64 {
	var u *state.Used
	switch {
	case l.Over > overLimit:
		return l.usedOverTime(v, nowS)
	case l.PerJob:
		return 0
	case l.Assoc != 0:
		u = v.AssocUsed(l.Assoc)
	case l.User != "":
		u = v.QOSUserUsed(l.QOS, l.User)
	case l.Account != "":
		u = v.QOSAccountUsed(l.QOS, l.Account)
	default:
		u = v.QOSUsed(l.QOS)
	}
	switch l.What {
	case Submit:
		return u.Submitted
	case record.LimitJobs:
		return u.Jobs
	}
	return int64(u.TRES.Get(l.What))
}

// ofRecord returns the limits of a record, by its association.
func ofRecord(v *state.View, j *pb.JobRecord) []Limit {
	a := v.Policy().AssocOf(j.Spec.GetUser(), state.AccountOf(j.Spec), j.Partition)
	return Of(v, a, j.Spec.GetQos(), j.Partition, j.Spec.GetUser())
}

// ofPending returns the limits of a waiting job, in all of the partitions where it may run.
func ofPending(v *state.View, j *pb.JobRecord) (out []Limit) {
	for partition := range strings.SplitSeq(convert.PartitionList(v, j.Spec), ",") {
		for _, l := range ofRecord(v, &pb.JobRecord{Spec: j.Spec, Partition: partition}) {
			if !slices.Contains(out, l) {
				out = append(out, l)
			}
		}
	}
	return out
}

// lasting returns the limits of a record that apply at all hours: neither those with hours, nor those that one with hours replaces.
func lasting(v *state.View, j *pb.JobRecord) []Limit {
	open := ofRecord(v.AtAllHours(), j)
	return slices.DeleteFunc(ofRecord(v, j), func(l Limit) bool { return l.UntilNS != 0 || !slices.Contains(open, l) })
}

// denied returns the limits that refuse a record: those of a job one of whose QOS has DenyOnLimit.
func denied(v *state.View, j *pb.JobRecord) []Limit {
	denies := func(q *pb.QosRecord) bool { return slices.Contains(q.GetFlags(), "DenyOnLimit") }
	if !slices.ContainsFunc(inOrder(v, j.Spec.GetQos(), j.Partition), denies) {
		return nil
	}
	return lasting(v, j)
}

// counts reports whether a record counts for a limit.
func (l *Limit) counts(v *state.View, j *pb.JobRecord) bool {
	if l.Assoc != 0 {
		for a := range v.Policy().Chain(v.Policy().AssocOf(j.Spec.GetUser(), state.AccountOf(j.Spec), j.Partition)) {
			if a.Id == l.Assoc {
				return true
			}
		}
		return false
	}
	found := false
	v.QOSCounting(j.Spec.GetQos(), j.Partition, func(q *pb.QosRecord) { found = found || q.Id == l.QOS })
	return found && (l.User == "" || l.User == j.Spec.GetUser()) && (l.Account == "" || l.Account == state.AccountOf(j.Spec))
}

// Refuses returns the reason why a record cannot be submitted, or nil: there are too many, or a QOS of it has DenyOnLimit and it could
// never start. For a changed job, old is its previous record: it counts already where it stays.
func Refuses(v *state.View, j, old *pb.JobRecord) *pb.Problem {
	if !v.Settings.EnforceLimits {
		return nil
	}
	for partition := range strings.SplitSeq(convert.PartitionList(v, j.Spec), ",") {
		if p := refuses(v, &pb.JobRecord{Spec: j.Spec, Partition: partition, TimeLimitS: j.TimeLimitS}, state.Tasks(j), old); p != nil {
			return p
		}
	}
	return nil
}

func refuses(v *state.View, j *pb.JobRecord, tasks int64, old *pb.JobRecord) *pb.Problem {
	for _, l := range ofRecord(v, j) {
		if l.What != Submit || old != nil && l.counts(v, old) {
			continue
		}
		if used := l.Used(v, v.NowNS/1e9); used+tasks > l.Most {
			return refusal(&l, "%s has %d of %d jobs, this needs %d more", l.Who, used, l.Most, tasks)
		}
	}
	limits := denied(v, j)
	if len(limits) == 0 {
		return nil
	}
	request := convert.Request(j.Spec, v.Users())
	bare := *request
	bare.MinCPUs = 0 // a job whose --mincpus alone exceeds a limit waits, as with Slurm
	gets, asks := sizing.Count(request), sizing.Count(&bare)
	for _, l := range limits {
		counts := &asks
		if strings.HasPrefix(l.What, record.LimitLeast) {
			counts = &gets
		}
		switch {
		case l.What == Submit, l.What == record.LimitShare:
		case sizing.LimitNeedAtOnce(l.whole(), counts, wall(j.TimeLimitS)) > l.Most:
			what := "%s may use %d of " + l.What + ", this needs more"
			if l.What == record.LimitWall {
				what = "%s may run jobs for %d seconds, this needs more"
			}
			if l.Over > overLimit {
				return refusal(&l, "%s allows %s of %s, this needs more", l.Who, hours(l.Most), l.amount())
			}
			if tres, mins := strings.CutPrefix(l.What, record.LimitMins); mins {
				return refusal(&l, "%s allows a job %d minutes of %s, this needs more", l.Who, l.Most/60, tres)
			}
			if tres, each := strings.CutPrefix(l.What, record.LimitEach); each {
				return refusal(&l, "%s allows a job %d of %s for each of its nodes, this needs more", l.Who, l.Most, tres)
			}
			if tres, least := strings.CutPrefix(l.What, record.LimitLeast); least {
				return refusal(&l, "%s asks jobs for %d of %s at least, this asks for less", l.Who, -l.Most, tres)
			}
			return refusal(&l, what, l.Who, l.Most)
		}
	}
	return nil
}

// Notes list the limits that a waiting job would exceed now, with their owners and the use under them.
func Notes(v *state.View, j *pb.JobRecord) (out []string) {
	if !v.Settings.EnforceLimits {
		return nil
	}
	counts := sizing.Count(convert.Request(j.Spec, v.Users()))
	for _, l := range ofPending(v, j) {
		if l.What == record.LimitShare {
			if j.Reason == l.Reason {
				out = append(out, fmt.Sprintf("%s has a UsageThreshold of %g, and the fair-share factor of the user is less (%s)", l.Who,
					float64(l.Most)/1e6, l.Reason))
			}
			continue
		}
		need := l.counted(sizing.LimitNeedAtOnce(l.What, &counts, wall(j.TimeLimitS)))
		used := l.Used(v, v.NowNS/1e9)
		if l.What == Submit || used+need <= l.Most {
			continue
		}
		what := l.What
		if strings.HasPrefix(what, record.LimitLeast) && j.Reason != l.Reason {
			continue // it may get more than it requests
		}
		if l.UntilNS != 0 {
			l.Reason += ", which counts until " + timespec.FormatUTC(l.UntilNS)
		}
		switch what {
		case record.LimitJobs:
			what = "running jobs"
		case record.LimitWall:
			out = append(out, fmt.Sprintf("%s allows jobs of %s, this is longer (%s)", l.Who, timespec.Clock(l.Most), l.Reason))
			continue
		}
		if l.Need != (record.Factor{}) && strings.HasPrefix(what, record.LimitMins) {
			l.Reason += fmt.Sprintf(", with UsageFactor %g", l.Need.Float())
		}
		if l.Over > overLimit {
			out = append(out, l.noteOverTime(v, need))
		} else if tres, mins := strings.CutPrefix(what, record.LimitMins); mins {
			out = append(out, fmt.Sprintf("%s allows a job %d minutes of %s, this needs %d until its time limit (%s)", l.Who,
				l.Most/60, tres, need/60, l.Reason))
		} else if tres, each := strings.CutPrefix(what, record.LimitEach); each {
			out = append(out, fmt.Sprintf("%s allows a job %d %s for each of its nodes, on %d this needs %d (%s)", l.Who, l.Most, tres,
				counts.Nodes, need, l.Reason))
		} else if tres, least := strings.CutPrefix(what, record.LimitLeast); least {
			out = append(out, fmt.Sprintf("%s asks jobs for %d %s at least, this asks for %d (%s)", l.Who, -l.Most, tres, -need, l.Reason))
		} else if l.PerJob {
			out = append(out, fmt.Sprintf("%s allows a job %d %s, this needs %d (%s)", l.Who, l.Most, what, need, l.Reason))
		} else {
			out = append(out, fmt.Sprintf("%s uses %d of %d %s, this needs %d more (%s)", l.Who, used, l.Most, what, need, l.Reason))
		}
	}
	return out
}

func refusal(l *Limit, format string, args ...any) *pb.Problem {
	return pb.NewProblem(pb.CodeAccountingPolicy, format, args...).WithLead("%s", l.Reason)
}

// Allows reports whether a job that is about to start with its allocation keeps its limits. The plan has checked this, but something may
// have changed since.
func Allows(v *state.View, j *pb.JobRecord) bool {
	if !v.Settings.EnforceLimits {
		return true
	}
	held := state.HeldTRES(j)
	for _, l := range ofRecord(v, j) {
		need := int64(held.Get(l.What))
		switch l.What {
		case Submit, record.LimitShare: // the planner knows the factors
			continue
		case record.LimitJobs:
			need = 1
		case record.LimitWall:
			need = wall(j.TimeLimitS)
		}
		if tres, mins := strings.CutPrefix(l.What, record.LimitMins); mins {
			need = record.Product(heldOf(held, tres), wall(j.TimeLimitS))
		} else if tres, spent := strings.CutPrefix(l.What, record.LimitSpent); spent {
			need = min(1, heldOf(held, tres))
		} else if tres, each := strings.CutPrefix(l.What, record.LimitEach); each {
			need = heldOf(held, tres) / max(1, heldOf(held, "node"))
		} else if tres, least := strings.CutPrefix(l.What, record.LimitLeast); least {
			counts := sizing.Count(convert.Request(j.Spec, v.Users()))
			need = min(-heldOf(held, tres), sizing.LimitNeedAtOnce(l.What, &counts, 0))
		}
		if l.Used(v, v.NowNS/1e9)+l.counted(need) > l.Most {
			return false
		}
	}
	return true
}

// Left returns the rest under a limit; nowS is the time. shares are the factors of all users, by account and user.
func (l *Limit) Left(v *state.View, nowS int64, shares []record.Share) int64 {
	if l.What != record.LimitShare {
		return l.Most - l.Used(v, nowS)
	}
	i, known := slices.BinarySearchFunc(shares, l, func(s record.Share, l *Limit) int {
		return cmp.Or(strings.Compare(s.Account, l.Account), strings.Compare(s.User, l.User))
	})
	if known && int64(math.Round(shares[i].Factor*1e6)) >= l.Most {
		return 1
	}
	return 0
}

// wall converts a time limit of a record to seconds.
func wall(limitS uint32) int64 {
	if limitS == pb.Unlimited {
		return record.Forever
	}
	return int64(limitS)
}

// Time gives a new record without a time limit the default of its association (DefaultTime), capped by the limits of its partition and its
// own.
func Time(v *state.View, j *pb.JobRecord) {
	if j.Spec.TimeLimitS != 0 {
		return
	}
	limitS := j.TimeLimitS
	a := v.Policy().AssocOf(j.Spec.GetUser(), state.AccountOf(j.Spec), j.Partition)
	said := v.Policy().JobDefaultsOf(a).TimeS
	if said != 0 {
		limitS = min(max(said, j.Spec.TimeMinS), v.Partition(j.Partition).MaxTimeS)
	}
	if v.Settings.EnforceLimits {
		for _, l := range lasting(v, j) {
			if l.What == record.LimitWall && l.Most > 0 && wall(limitS) > l.Most {
				limitS = uint32(l.Most)
			}
		}
	}
	if said != 0 || limitS != j.TimeLimitS {
		j.Spec = state.CloneSpec(j.Spec)
		j.TimeLimitS, j.Spec.TimeLimitS = limitS, limitS
	}
}

// String describes a limit for logs and tests.
func (l Limit) String() string { return fmt.Sprintf("%s %s %d", l.Reason, l.What, l.Most) }

package limit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/conf/tres"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/record"
)

// over is the part of a use over time that a limit counts.
type over uint8

const (
	overLimit   over = iota + 1 // the job's own use until its time limit
	overSpent                   // past use, and present use by running jobs
	overRunning                 // the most that running jobs may still use until their time limits
	overSafe                    // both: AccountingStorageEnforce=safe
)

// overTime converts a limit over time to the scheduler's form: it is compared with a job's use until its time limit, or only with whether
// anything is left.
func (l Limit) overTime(safe bool) Limit {
	switch {
	case l.Over == 0:
		return l
	case l.Over == overSpent && !safe:
		l.What = record.LimitSpent + l.What
		return l
	case l.Over == overSpent:
		l.Over = overSafe
	}
	l.What = record.LimitMins + l.What
	return l
}

// tres returns the TRES of a limit.
func (l *Limit) tres() string {
	for _, prefix := range []string{record.LimitMins, record.LimitSpent, record.LimitEach, record.LimitLeast} {
		if tres, ok := strings.CutPrefix(l.What, prefix); ok {
			return tres
		}
	}
	return l.What
}

// whole returns the quantity for a job's total use under the limit.
func (l *Limit) whole() string {
	if l.Over > overLimit {
		return record.LimitMins + l.tres()
	}
	return l.What
}

// charged applies the UsageFactor of a QOS to limits over time. The use of its jobs is multiplied by it. With the flag UsageFactorSafe so
// is their need in order to start; jobs that then cost nothing are under no such limit.
func charged(q *pb.QosRecord, list []Limit) []Limit {
	use, need := state.UsageFactor(q), record.Factor{}
	if use == need {
		return list
	}
	if slices.Contains(q.GetFlags(), "UsageFactorSafe") {
		need = use
	}
	for i := range list {
		if l := &list[i]; l.Over != 0 {
			l.Need, l.Use = need, use
		}
	}
	return slices.DeleteFunc(list, func(l Limit) bool { return l.Need == record.NewFactor(0) })
}

// counted returns a need multiplied by its factor.
func (l *Limit) counted(n int64) int64 {
	if strings.HasPrefix(l.What, record.LimitMins) {
		return l.Need.Of(n)
	}
	return n
}

// counts reports whether limits of the row on a TRES are supported.
func (r *row) counts(what string) bool {
	return Counted(what) || r.over > overLimit && what == "billing"
}

// minutes returns the end of the reason of a limit over time.
func (r *row) minutes(kind, noun string) string {
	run := ""
	if r.over == overRunning {
		run = "Run"
	}
	switch {
	case r.user, r.account:
		if kind == "mem" {
			noun = "Memory"
		} else if kind == "billing" {
			noun = "Billing"
		}
		per := "PerUser"
		if r.account {
			per = "PerAccount"
		}
		return noun + "RunMins" + per
	case kind == "cpu":
		return "CPU" + run + "MinutesLimit"
	case kind == "mem" && !strings.HasPrefix(r.reason, "Assoc"):
		noun = "Memory"
	case kind == "billing":
		noun = "Billing"
	}
	return noun + run + "Minutes"
}

// usedOverTime returns the use under a limit over time. While it is unknown, it is the whole limit: jobs wait until accounting has been
// read.
func (l *Limit) usedOverTime(v *state.View, nowS int64) int64 {
	if l.Over == overRunning {
		return l.running(v, nowS)
	}
	spent, known := l.spent(v, nowS)
	if !known {
		return l.Most
	}
	if l.Over == overSafe {
		spent += l.running(v, nowS)
	}
	return spent
}

// running returns the most that running jobs may still use under a limit over time.
func (l *Limit) running(v *state.View, nowS int64) int64 {
	switch {
	case l.User != "":
		return v.QOSUserLeft(l.QOS, l.User, l.name(), nowS)
	case l.Account != "":
		return v.QOSAccountLeft(l.QOS, l.Account, l.name(), nowS)
	case l.QOS != 0:
		return v.QOSTime(l.QOS).Left(l.name(), nowS)
	}
	return v.AssocTime(l.Assoc).Left(l.name(), nowS)
}

// name returns state's name of the TRES. GrpWall counts the time of all jobs, whatever they hold.
func (l *Limit) name() string {
	if name := l.tres(); name != record.LimitJobs {
		return name
	}
	return state.WallTime
}

// amount names the TRES for people.
func (l *Limit) amount() string {
	if name := l.tres(); name != record.LimitJobs {
		return name
	}
	return "run time"
}

func (l *Limit) spent(v *state.View, nowS int64) (used int64, known bool) {
	if l.QOS != 0 {
		return v.QOSSpent(l.QOS, l.name(), nowS)
	}
	return v.AssocSpent(l.Assoc, l.name(), nowS)
}

// noteOverTime explains why a job with that need would exceed a limit over time.
func (l *Limit) noteOverTime(v *state.View, need int64) string {
	nowS := v.NowNS / 1e9
	of, left := "of "+l.amount(), l.running(v, nowS)
	if l.Over == overRunning {
		return fmt.Sprintf("%s: running jobs may still use %s of %s %s, this would add %s (%s)", l.Who, hours(left), hours(l.Most), of,
			hours(need), l.Reason)
	}
	spent, known := l.spent(v, nowS)
	switch {
	case !known:
		return fmt.Sprintf("%s: what has been used %s is being read from accounting (%s)", l.Who, of, l.Reason)
	case l.Over == overSafe && spent < l.Most:
		return fmt.Sprintf("%s has used %s of %s %s, running jobs may use %s more and this %s (%s)", l.Who, hours(spent), hours(l.Most),
			of, hours(left), hours(need), l.Reason)
	}
	return fmt.Sprintf("%s has used %s of %s %s (%s)", l.Who, hours(spent), hours(l.Most), of, l.Reason)
}

// hours formats an amount.
func hours(seconds int64) string {
	if seconds >= record.Forever/2 {
		return "unlimited hours"
	}
	text := strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.2f", float64(seconds)/3600), "0"), ".")
	if text == "1" {
		return "1 hour"
	}
	return text + " hours"
}

// heldOf returns the amount of a TRES, or the number of jobs, that a job with these resources has.
func heldOf(held tres.List, name string) int64 {
	switch name {
	case record.LimitJobs:
		return 1
	case "billing":
		name = "cpu"
	}
	return int64(held.Get(name))
}

// Budget is a limit on total use (GrpTRESMins, GrpWall), and the use so far. Amounts are TRES × seconds.
type Budget struct {
	TRES    string // state.WallTime for GrpWall
	Most    int64
	Known   bool  // accounting has been read; otherwise Used is unknown
	Used    int64 // until now, running jobs included
	Running int64 // the most that running jobs may still use until their time limits
	Held    int64 // TRES that running jobs hold, except jobs that cost nothing
	row     *row
}

// AssocBudgets and QOSBudgets return the budgets of an association and of a QOS.
func AssocBudgets(v *state.View, a *pb.AssocRecord, nowS int64) []Budget {
	return budgets(v, ofAccounts, a.Values, Group{Assoc: a.Id}, nowS)
}

func QOSBudgets(v *state.View, q *pb.QosRecord, nowS int64) []Budget {
	return budgets(v, ofQOS, q.Values, Group{QOS: q.Id}, nowS)
}

func budgets(v *state.View, rows []row, values []*pb.PolicyValue, g Group, nowS int64) (out []Budget) {
	lines := v.AssocTime(g.Assoc)
	if g.QOS != 0 {
		lines = v.QOSTime(g.QOS)
	}
	for i := range rows {
		if rows[i].over != overSpent {
			continue
		}
		for _, l := range rows[i].limits(v, values, "", g, "") {
			b := Budget{TRES: l.name(), Most: l.Most, Running: lines.Left(l.name(), nowS), Held: lines.Running(l.name()), row: &rows[i]}
			b.Used, b.Known = l.spent(v, nowS)
			out = append(out, b)
		}
	}
	return out
}

// Exhausted reports whether any budget is used up for which running jobs may have to end: only then each has to be checked (Overtime).
func Exhausted(v *state.View, nowS int64) bool {
	if !v.Settings.EnforceLimits || v.Past() == nil {
		return false
	}
	over := func(b Budget) bool { return b.Used >= b.Most && b.Held > 0 }
	for _, a := range v.Policy().TimedAssocs() {
		if v.AssocTime(a.Id) != nil && slices.ContainsFunc(AssocBudgets(v, a, nowS), func(b Budget) bool {
			return over(b) && b.bindsIn(v, a)
		}) {
			return true
		}
	}
	for _, q := range v.Policy().TimedQOS() {
		if v.QOSTime(q.Id) != nil && slices.ContainsFunc(QOSBudgets(v, q, nowS), over) {
			return true
		}
	}
	return false
}

// bindsIn reports whether jobs of an association, or of those below it, use its budget and are in a QOS without one of the same kind, which
// would replace it. Its cost is proportional to the number of accounts.
func (b *Budget) bindsIn(v *state.View, a *pb.AssocRecord) bool {
	p := v.Policy()
	binds := func(a *pb.AssocRecord) bool {
		return slices.ContainsFunc(v.AssocUsed(a.Id).QOS, func(part state.QOSUsed) bool {
			i := slices.IndexFunc(p.Qoses(), func(q *pb.QosRecord) bool { return q.Id == part.ID })
			return part.Jobs > 0 && (i < 0 || !b.replacedBy(p.Qoses()[i]))
		})
	}
	if a.User != "" {
		return binds(a)
	}
	for _, account := range p.Accounts() { // an account's own figures include its users'
		below := p.Assoc("", account.Name, "")
		for up := range p.Chain(below) {
			if up == a && binds(below) {
				return true
			}
		}
	}
	return false
}

// replacedBy reports whether a QOS has the same budget: then that of its jobs' association does not count.
func (b *Budget) replacedBy(q *pb.QosRecord) bool {
	return slices.ContainsFunc(q.Values, func(val *pb.PolicyValue) bool {
		return val.Name == b.row.setting && (b.row.what != "" || val.Tres == b.TRES)
	})
}

// Overtime returns the reason why a running job has to end: a budget that it uses is used up. "": it may continue.
func Overtime(v *state.View, j *pb.JobRecord, nowS int64) string {
	held := state.HeldTRES(j)
	for _, l := range ofRecord(v, j) {
		if l.Over != overSpent && l.Over != overSafe || heldOf(held, l.tres()) == 0 || l.Use == record.NewFactor(0) {
			continue
		}
		if spent, known := l.spent(v, nowS); known && spent >= l.Most {
			return fmt.Sprintf("%s%s has used up %s of %s (%s)", budgetDetail, l.Who, hours(l.Most), l.amount(), l.Reason)
		}
	}
	return ""
}

// budgetDetail begins the detail of a job that was ended because a budget was used up.
const budgetDetail = "out of budget: "

// OutOfBudget reports whether a job was ended for that reason.
func OutOfBudget(j *pb.JobRecord) bool { return strings.HasPrefix(j.ReasonDetail, budgetDetail) }

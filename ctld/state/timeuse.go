package state

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/conf/tres"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/record"
)

// The use of jobs over time is counted for each association and each QOS while any of them limits it (Policy.Budgeted). It is a line over
// time: a commit changes the lines of the jobs that it changes, and the use at any moment is read off. A line begins when counting begins;
// earlier use is read from accounting (fairshare.Keeper) and noted as Past. Neither is stored: Load counts running jobs, and accounting is
// read again. Check counts anew.
//
// All amounts are TRES × seconds, times the current UsageFactor of the job's QOS, also for past use: a change of the factor restarts
// counting. There is a line for each factor. The factor is not multiplied into the line, so that lines are whole numbers.
//
// Attempts count whole seconds, never more than accounting will: a budget that is used up here is used up there. Sums may overflow on the
// way; the differences that are read off do not.
//
// Where a QOS limits the use of each user or account, an association also has lines for its jobs in that QOS: a user's, and an account's
// for its own jobs.

// WallTime names the time itself among the resources, as accounting does.
const WallTime = "wall"

// unlimitedS is the assumed run time of a job without a time limit.
const unlimitedS = 365 * 24 * 3600

// Line is the use of one TRES by jobs with the same factor, in one QOS or in all.
type Line struct {
	QOS    uint32 // of jobs in that QOS only; 0: of all
	Name   string
	Factor record.Factor // of the jobs' QOS; not multiplied into the amounts
	Rate   int64         // held by running attempts
	Begin  int64         // sum of each attempt's rate × its begin
	Until  int64         // sum of each attempt's rate × the end of its time limit
	Rest   int64         // the most that suspended attempts may still use
	Done   int64         // used by suspended attempts, and by attempts that have ended since counting began
}

// TimeUse are the lines of an association or a QOS, by QOS, name and factor. Immutable.
type TimeUse []Line

func lineOrder(a, b Line) int {
	return cmp.Or(cmp.Compare(a.QOS, b.QOS), strings.Compare(a.Name, b.Name), a.Factor.Compare(b.Factor))
}

// sum adds up the lines of a TRES.
func (t *TimeUse) sum(qos uint32, name string, of func(l *Line) int64) (n int64) {
	if t == nil {
		return 0
	}
	i, _ := slices.BinarySearchFunc(*t, Line{QOS: qos, Name: name}, lineOrder)
	for ; i < len(*t) && (*t)[i].QOS == qos && (*t)[i].Name == name; i++ {
		n += of(&(*t)[i])
	}
	return n
}

// Total returns the use of a TRES since counting began, running jobs included.
func (t *TimeUse) Total(name string, nowS int64) int64 {
	return t.sum(0, name, func(l *Line) int64 { return l.Factor.Of(l.Rate*nowS - l.Begin + l.Done) })
}

// Left returns the most that running jobs may still use of a TRES until their time limits.
func (t *TimeUse) Left(name string, nowS int64) int64 { return t.left(0, name, nowS) }

func (t *TimeUse) left(qos uint32, name string, nowS int64) int64 {
	return t.sum(qos, name, func(l *Line) int64 { return l.Factor.Of(l.Until - l.Rate*nowS + l.Rest) })
}

// Running returns the amount of a TRES that running jobs hold, except jobs with a factor of 0.
func (t *TimeUse) Running(name string) int64 {
	return t.sum(0, name, func(l *Line) int64 {
		if l.Factor == record.NewFactor(0) {
			return 0
		}
		return l.Rate
	})
}

// Names returns the TRES that have a line.
func (t *TimeUse) Names() (names []string) {
	if t != nil {
		for _, l := range *t {
			if l.QOS == 0 {
				names = append(names, l.Name)
			}
		}
	}
	return slices.Compact(names)
}

// AssocTime and QOSTime return the lines of an association and of a QOS.
func (v *View) AssocTime(id uint32) *TimeUse { return v.assocTime.Get(id) }
func (v *View) QOSTime(id uint32) *TimeUse   { return v.qosTime.Get(id) }

// QOSUserLeft and QOSAccountLeft return TimeUse.Left for a QOS with such limits: of a user's jobs in all accounts, and of an account's own
// jobs.
func (v *View) QOSUserLeft(qos uint32, user, name string, nowS int64) (n int64) {
	for _, a := range v.Policy().UserAssocs(user) {
		n += v.AssocTime(a.Id).left(qos, name, nowS)
	}
	return n
}

func (v *View) QOSAccountLeft(qos uint32, account, name string, nowS int64) int64 {
	return v.AssocTime(v.Policy().Assoc("", account, "").GetId()).left(qos, name, nowS)
}

// Past is the use before counting began, by id and TRES, less its decay since. Immutable.
type Past struct {
	Counting   uint64 // the View.Counting that it belongs to
	Assoc, QOS map[uint32]map[string]int64
}

// Past returns the use before counting began; nil while it is not known.
func (v *View) Past() *Past { return v.past }

// Counting names the beginning of counting: lines of two views with different numbers cannot be compared.
func (v *View) Counting() uint64 { return v.counting }

// AssocSpent and QOSSpent return the total use of a TRES until now; false while it is not known.
func (v *View) AssocSpent(id uint32, name string, nowS int64) (int64, bool) {
	if v.past == nil {
		return 0, false
	}
	return v.past.Assoc[id][name] + v.AssocTime(id).Total(name, nowS), true
}

func (v *View) QOSSpent(id uint32, name string, nowS int64) (int64, bool) {
	if v.past == nil {
		return 0, false
	}
	return v.past.QOS[id][name] + v.QOSTime(id).Total(name, nowS), true
}

// PastRead: accounting was read. Not durable.
type PastRead struct{ Past *Past }

func (e PastRead) apply(tx *Tx) {
	if e.Past.Counting == tx.next.counting {
		tx.next.past = e.Past
	}
}

// Attrs implements Event.
func (e PastRead) Attrs() []any { return nil }

// attemptTime holds all values of a record that its lines depend on.
type attemptTime struct {
	attempt       uint32
	begin, end    int64 // in whole seconds, without suspended time; end = 0: running
	suspended     bool
	limitS        int64
	held          string // AllocTres
	user, account string
	partition     string
	qos           string
}

// attemptTimeOf returns the zero value where the record has no attempt that holds resources.
func attemptTimeOf(j *pb.JobRecord) (a attemptTime) {
	if j == nil || !Active(j) || Pending(j) || j.StartNs == 0 || j.AllocTres == "" {
		return a
	}
	a = attemptTime{attempt: j.Attempt, begin: (j.StartNs + j.SuspendedNs + 1e9 - 1) / 1e9, limitS: int64(j.TimeLimitS), held: j.AllocTres,
		user: j.Spec.GetUser(), account: AccountOf(j.Spec), partition: j.Partition, qos: strings.ToLower(j.Spec.GetQos())}
	if j.TimeLimitS == pb.Unlimited {
		a.limitS = unlimitedS
	}
	switch {
	case j.StopReason != "" && j.EndNs != 0:
		a.end = max(j.EndNs/1e9, a.begin)
	case j.State == pb.JobState_JOB_SUSPENDED:
		a.end, a.suspended = max(j.SuspendNs/1e9, a.begin), true
	}
	return a
}

// countTime replaces one record of a job in the lines with the next; either may be nil.
func (tx *Tx) countTime(old, fresh *pb.JobRecord) {
	if tx.uncounted || !tx.next.Policy().Budgeted() {
		return
	}
	a, b := attemptTimeOf(old), attemptTimeOf(fresh)
	if a == b {
		return
	}
	tx.addTime(&a, -1)
	tx.addTime(&b, 1)
	if a.held == "" || b.held != "" && a.attempt == b.attempt {
		return
	}
	if a.suspended = false; a.end == 0 { // the attempt has ended: its use stays
		a.end = max(tx.NowNS/1e9, a.begin)
	}
	if fresh != nil && fresh.Attempt == a.attempt && fresh.State.Terminal() && fresh.EndNs != 0 {
		a.end = max(fresh.EndNs/1e9, a.begin)
	}
	tx.addTime(&a, 1)
}

// addTime adds an attempt by times (-1 removes it).
func (tx *Tx) addTime(a *attemptTime, by int64) {
	held, err := tres.Parse(a.held)
	if a.held == "" || err != nil {
		return
	}
	held = append(held, tres.Item{Name: WallTime, Count: 1})
	p := tx.next.Policy()
	factor := UsageFactor(p.QOS(a.qos))
	for up := range p.CountsFor(a.user, a.account, a.partition) {
		lines := tx.next.AssocTime(up.Id).with(a, held, Line{Factor: factor}, by)
		if len(p.sharedQOS) > 0 && (up.User != "" || up.Account == a.account) {
			tx.next.QOSCounting(a.qos, a.partition, func(q *pb.QosRecord) {
				if slices.Contains(p.sharedQOS, q.Id) {
					lines = lines.with(a, held, Line{QOS: q.Id, Factor: factor}, by)
				}
			})
		}
		tx.putTime(&tx.next.assocTime, tx.baseTime(false), up.Id, lines)
	}
	tx.next.QOSCounting(a.qos, a.partition, func(q *pb.QosRecord) {
		tx.putTime(&tx.next.qosTime, tx.baseTime(true), q.Id, tx.next.QOSTime(q.Id).with(a, held, Line{Factor: factor}, by))
	})
}

// with returns t with an attempt added by times, in lines of the QOS and the factor of line.
func (t *TimeUse) with(a *attemptTime, held tres.List, line Line, by int64) *TimeUse {
	var n TimeUse
	if t != nil {
		n = slices.Clone(*t)
	}
	for _, it := range held {
		line.Name = it.Name
		i, found := slices.BinarySearchFunc(n, line, lineOrder)
		if !found {
			n = slices.Insert(n, i, line)
		}
		l, rate := &n[i], by*int64(min(it.Count, math.MaxInt64))
		switch {
		case a.end == 0:
			l.Rate += rate
			l.Begin += rate * a.begin
			l.Until += rate * (a.begin + a.limitS)
		case a.suspended:
			l.Rest += rate * max(0, a.begin+a.limitS-a.end)
			fallthrough
		default:
			l.Done += rate * (a.end - a.begin)
		}
	}
	n = slices.DeleteFunc(n, Line.empty)
	if len(n) == 0 {
		return nil
	}
	return &n
}

func (tx *Tx) baseTime(qos bool) *table[TimeUse] {
	switch {
	case tx.base == nil:
		return nil
	case qos:
		return tx.base.qosTime
	}
	return tx.base.assocTime
}

func (tx *Tx) putTime(t **table[TimeUse], base *table[TimeUse], id uint32, u *TimeUse) {
	if *t == base {
		*t = base.clone()
	}
	(*t).put(tx, id, u)
}

// recountTime restarts counting.
func (tx *Tx) recountTime() {
	tx.next.assocTime, tx.next.qosTime, tx.next.past, tx.next.counting = &table[TimeUse]{}, &table[TimeUse]{}, nil, tx.Seq
	if !tx.next.Policy().Budgeted() {
		return
	}
	for j := range tx.next.Jobs.All() {
		a := attemptTimeOf(j)
		tx.addTime(&a, 1)
	}
}

// checkTime counts running attempts anew and compares. Ended attempts cannot be checked: their records are gone.
func (v *View) checkTime() (faults []error) {
	tx := &Tx{token: new(token), next: *v}
	tx.recountTime()
	for id := range highestID(v.Policy()) + 1 {
		for _, both := range []struct {
			what      string
			has, want *TimeUse
		}{{"association", v.AssocTime(id), tx.next.AssocTime(id)}, {"QOS", v.QOSTime(id), tx.next.QOSTime(id)}} {
			if h, w := both.has.running(), both.want.running(); h != w {
				faults = append(faults, fmt.Errorf("%s %d: counted as using %s over time, its jobs use %s", both.what, id, h, w))
			}
		}
	}
	return faults
}

func (l Line) empty() bool { return l == Line{QOS: l.QOS, Name: l.Name, Factor: l.Factor} }

func (t *TimeUse) running() (text string) {
	if t == nil {
		return ""
	}
	for _, l := range *t {
		if l.Done = 0; !l.empty() {
			text += fmt.Sprintf("%+v ", l)
		}
	}
	return text
}

// UsageFactor returns the factor for use over time of a QOS's jobs; a nil QOS has none. With the flag UsageFactorSafe it also applies to
// the use that a job may still need.
func UsageFactor(q *pb.QosRecord) (f record.Factor) {
	for _, v := range q.GetValues() {
		if v.Name == "UsageFactor" {
			f = record.NewFactor(v.Value)
		}
	}
	return f
}

// sameFactors reports whether the factors of all QOS are unchanged.
func (p *Policy) sameFactors(old *Policy) bool {
	return !slices.ContainsFunc(p.qos, func(q *pb.QosRecord) bool { return UsageFactor(q) != UsageFactor(old.QOS(q.Name)) })
}

// timed are the limits over time; shared are those for each user or account in a QOS.
var (
	timed  = append([]string{"GrpTRESMins", "GrpTRESRunMins", "GrpWall"}, shared...)
	shared = []string{"MaxTRESRunMinsPerUser", "MaxTRESRunMinsPerAccount"}
)

// Budgeted reports whether any association or QOS has a limit over time.
func (p *Policy) Budgeted() bool { return len(p.timedAssocs)+len(p.timedQOS) > 0 }

// TimedAssocs and TimedQOS return the records with such a limit.
func (p *Policy) TimedAssocs() []*pb.AssocRecord { return p.timedAssocs }
func (p *Policy) TimedQOS() []*pb.QosRecord      { return p.timedQOS }

// Thresholds reports whether jobs of a QOS have to wait for a fair-share factor (EnforceUsageThreshold).
func (p *Policy) Thresholds() bool { return p.thresholds }

// Accrues reports whether an association or a QOS limits how many jobs gain priority by their age.
func (p *Policy) Accrues() bool { return p.accrues }

var accruing = []string{"GrpJobsAccrue", "MaxJobsAccrue", "MaxJobsAccruePerUser", "MaxJobsAccruePerAccount"}

// noteTimed computes the fields for TimedAssocs, TimedQOS, Thresholds and Accrues.
func (p *Policy) noteTimed() {
	has := func(values []*pb.PolicyValue, any []string) bool {
		return slices.ContainsFunc(values, func(v *pb.PolicyValue) bool { return slices.Contains(any, v.Name) })
	}
	p.timedAssocs, p.timedQOS, p.sharedQOS, p.thresholds, p.accrues = nil, nil, nil, false, false
	for _, a := range p.assocs {
		p.accrues = p.accrues || has(a.Values, accruing)
		if has(a.Values, timed) {
			p.timedAssocs = append(p.timedAssocs, a)
		}
	}
	for _, q := range p.qos {
		p.accrues = p.accrues || has(q.Values, accruing)
		if has(q.Values, timed) {
			p.timedQOS = append(p.timedQOS, q)
		}
		if has(q.Values, shared) {
			p.sharedQOS = append(p.sharedQOS, q.Id)
		}
		p.thresholds = p.thresholds || slices.Contains(q.Flags, "EnforceUsageThreshold") &&
			slices.ContainsFunc(q.Values, func(v *pb.PolicyValue) bool { return v.Name == "UsageThreshold" })
	}
}

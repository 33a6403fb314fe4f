package acct

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/conf/jobid"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// selection is a parsed request. Its tests apply to records of the View and of the database alike; sqlOnly says that SQL can make all of
// them.
type selection struct {
	r     *pb.AccountingRequest
	since int64
	until int64 // inclusive
	tests []func(*pb.JobRecord) bool

	jobs, arrays []uint32 // named by -j
	byID         bool
	sqlOnly      bool
	wide         bool // covers much of the time span of the database
}

// second is the resolution of sacct's times: a time stands for the whole second.
const second = int64(time.Second)

// newSelection parses a request; nowNS is the default end of its window.
func newSelection(r *pb.AccountingRequest, nowNS int64) (*selection, *pb.Problem) {
	q := &selection{r: r, since: r.SinceNs, until: r.UntilNs, sqlOnly: true}
	if q.until == 0 {
		q.until = nowNS
	}
	if q.until < math.MaxInt64-second {
		q.until = q.until/second*second + second - 1
	}
	if p := q.ids(); p != nil {
		return nil, p
	}
	q.window()
	uid := state.OneOf(r.Uids)
	q.add(len(r.Uids), func(j *pb.JobRecord) bool { return uid(j.Spec.Uid) })
	q.residual()
	return q, nil
}

// add adds a test if there is something to compare with.
func (q *selection) add(n int, f func(*pb.JobRecord) bool) {
	if n > 0 {
		q.tests = append(q.tests, f)
	}
}

// match reports whether an attempt is selected.
func (q *selection) match(j *pb.JobRecord) bool {
	for _, f := range q.tests {
		if !f(j) {
			return false
		}
	}
	return true
}

// ids parses the ids of -j; an invalid one names no job.
func (q *selection) ids() *pb.Problem {
	if q.byID = len(q.r.Ids) > 0; !q.byID {
		return nil
	}
	names := &jobid.Names{}
	for _, word := range q.r.Ids {
		id, err := jobid.Parse(word)
		if err != nil {
			continue
		}
		if err := names.Add(id); err != nil {
			return pb.NewProblem(pb.CodeInvalidSpec, "%v", err).WithHint("name fewer at a time")
		}
		q.sqlOnly = q.sqlOnly && id.Tasks == nil
	}
	names.Sort()
	q.jobs, q.arrays = names.Jobs(), names.Arrays()
	q.tests = append(q.tests, func(j *pb.JobRecord) bool { return state.Named(names, j) })
	return nil
}

// window selects by time (sacct(1), DEFAULT TIME WINDOW): without states, jobs that were eligible in the window and had not ended before
// it; with states, jobs that were in one of them during it.
func (q *selection) window() {
	if q.r.Runaway {
		q.tests = append(q.tests, func(j *pb.JobRecord) bool { return !ended(j) })
		return
	}
	if !q.byState() {
		q.tests = append(q.tests, func(j *pb.JobRecord) bool {
			return (j.EligibleNs != 0 || q.byID) && j.EligibleNs <= q.until && endOf(j) >= q.since
		})
		return
	}
	q.sqlOnly = false
	q.tests = append(q.tests, func(j *pb.JobRecord) bool {
		return slices.ContainsFunc(q.r.States, func(s pb.JobState) bool { return q.was(j, s) }) ||
			j.StateFlags&q.r.StateFlags != 0 && ended(j) && q.within(j.EndNs)
	})
}

func (q *selection) byState() bool { return len(q.r.States) > 0 || q.r.StateFlags != 0 }

// byEnd reports whether only attempts that have ended within the window are selected.
func (q *selection) byEnd() bool {
	return q.byState() && !slices.ContainsFunc(q.r.States, func(s pb.JobState) bool { return !s.Terminal() })
}

func (q *selection) within(ns int64) bool { return ns >= q.since && ns <= q.until }

// was reports whether an attempt was in a state during the window.
func (q *selection) was(j *pb.JobRecord, s pb.JobState) bool {
	switch s {
	case pb.JobState_JOB_PENDING:
		left := endOf(j)
		if j.StartNs != 0 {
			left = j.StartNs
		}
		return j.EligibleNs != 0 && j.EligibleNs <= q.until && left >= q.since
	case pb.JobState_JOB_RUNNING:
		return len(j.Alloc) > 0 && j.StartNs <= q.until && endOf(j) >= q.since
	case pb.JobState_JOB_SUSPENDED:
		return j.SuspendNs != 0 && j.SuspendNs <= q.until && (j.State == s || j.SuspendedNs > 0 && j.SuspendNs >= q.since) &&
			endOf(j) >= q.since
	}
	return j.State == s && j.StateFlags&pb.JobRequeued == 0 && q.within(j.EndNs)
}

// residual adds the tests that SQL does not make.
func (q *selection) residual() {
	r, from := q.r, len(q.tests)
	word := func(list []string, get func(*pb.JobRecord) string) { // case-insensitive
		lower := make([]string, len(list))
		for i, s := range list {
			lower[i] = strings.ToLower(s)
		}
		in := state.OneOf(lower)
		q.add(len(list), func(j *pb.JobRecord) bool { return in(strings.ToLower(get(j))) })
	}
	gid, part, name := state.OneOf(r.Gids), state.OneOf(r.Partitions), state.OneOf(r.Names)
	q.add(len(r.Gids), func(j *pb.JobRecord) bool { return gid(j.Spec.Gid) })
	word(r.Accounts, func(j *pb.JobRecord) string { return j.Spec.Account })
	q.add(len(r.Partitions), func(j *pb.JobRecord) bool {
		return part(j.Partition) || j.StartNs == 0 && slices.ContainsFunc(strings.Split(j.Spec.Partition, ","), part)
	})
	q.add(len(r.Names), func(j *pb.JobRecord) bool { return name(j.Spec.Name) })
	word(r.Qos, func(j *pb.JobRecord) string { return qosOf(j) })
	word(r.Wckeys, func(j *pb.JobRecord) string { return j.Spec.Wckey })
	q.add(len(r.Features), func(j *pb.JobRecord) bool { return hasFeatures(j.Spec.Features, r.Features) })
	if len(r.Nodes) > 0 {
		want := map[string]bool{}
		for _, n := range r.Nodes {
			want[n] = true
		}
		q.tests = append(q.tests, func(j *pb.JobRecord) bool { return ranOn(j, want) })
	}
	q.ranges()
	if len(q.tests) > from {
		q.sqlOnly = false
	}
}

func (q *selection) ranges() {
	r := q.r
	between := func(low, high uint64, get func(*pb.JobRecord) uint64) {
		if low == 0 && high == 0 {
			return
		}
		if high == 0 {
			high = low
		}
		q.tests = append(q.tests, func(j *pb.JobRecord) bool { return get(j) >= low && get(j) <= high })
	}
	between(r.MinNodes, r.MaxNodes, func(j *pb.JobRecord) uint64 { return uint64(len(j.Alloc)) })
	between(r.MinCpus, r.MaxCpus, func(j *pb.JobRecord) uint64 { return uint64(j.NumCpus) })
	between(r.MinLimitS, r.MaxLimitS, func(j *pb.JobRecord) uint64 { return uint64(j.TimeLimitS) })
}

func qosOf(j *pb.JobRecord) string {
	if j.Spec.Qos == "" {
		return "normal"
	}
	return j.Spec.Qos
}

// hasFeatures reports whether a constraint names all of the features.
func hasFeatures(constraint string, all []string) bool {
	words := strings.FieldsFunc(constraint, func(c rune) bool { return strings.ContainsRune("&|[]()*, ", c) })
	for _, f := range all {
		if !slices.Contains(words, f) {
			return false
		}
	}
	return true
}

func ranOn(j *pb.JobRecord, want map[string]bool) bool {
	if len(j.Alloc) > 0 {
		return slices.ContainsFunc(j.Alloc, func(a *pb.NodeAlloc) bool { return want[a.Node] })
	}
	names, err := hostlist.Expand(j.NodeList)
	return err == nil && slices.ContainsFunc(names, func(n string) bool { return want[n] })
}

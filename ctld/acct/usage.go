package acct

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-hpc/sluice/conf/tres"
	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Sums are amounts of trackable resources times seconds, by name; mem is in MiB.
type Sums map[string]float64

// Wall names the time itself among the sums.
const Wall = "wall"

func (s Sums) add(list tres.List, seconds float64) {
	for _, item := range list {
		s[item.Name] += float64(item.Count) * seconds
	}
	s[Wall] += seconds
}

// Plus adds other sums.
func (s Sums) Plus(o Sums) {
	for name, v := range o {
		s[name] += v
	}
}

// Share is a user's allocation under one account.
type Share struct {
	Account   string
	UID       uint32
	User      string // login name, as of the jobs
	Partition string // set for a part of it (Parts), as is QOS
	QOS       string
	Used      Sums
	Left      Sums // the most that running jobs may still use until their time limits
}

type shareKey struct {
	account        string
	uid            uint32
	user           string
	partition, qos string
}

// shares are sorted for an answer by account and uid.
type shares map[shareKey]*Share

// of returns the share that a job counts for, and part the part of it.
func (m shares) of(j *pb.JobRecord) *Share {
	return m.at(shareKey{account: cmp.Or(j.Spec.Account, admit.DefaultAccount), uid: j.Spec.Uid, user: j.Spec.User})
}

func (m shares) part(j *pb.JobRecord) *Share {
	return m.at(shareKey{cmp.Or(j.Spec.Account, admit.DefaultAccount), j.Spec.Uid, j.Spec.User, j.Partition, j.Spec.Qos})
}

func (m shares) at(k shareKey) *Share {
	s := m[k]
	if s == nil {
		s = &Share{Account: k.account, UID: k.uid, User: k.user, Partition: k.partition, QOS: k.qos, Used: Sums{}, Left: Sums{}}
		m[k] = s
	}
	return s
}

func (m shares) sorted() []*Share {
	list := make([]*Share, 0, len(m))
	for _, s := range m {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b *Share) int {
		return cmp.Or(cmp.Compare(a.Account, b.Account), cmp.Compare(a.UID, b.UID), cmp.Compare(a.User, b.User),
			cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.QOS, b.QOS))
	})
	return list
}

// span returns the time during which an attempt held its allocation, until nowNS if it still does. An attempt that never started has none.
func span(j *pb.JobRecord, nowNS int64) (from, to int64, holds bool) {
	if j.StartNs == 0 || j.State == pb.JobState_JOB_PENDING {
		return 0, 0, false
	}
	if to = endOf(j); to == running {
		to, holds = nowNS, true
	}
	return j.StartNs, max(to, j.StartNs), holds
}

// awake returns the fraction of an attempt's span during which it was not suspended: a suspended job's CPUs count as free.
func awake(j *pb.JobRecord, from, to int64) float64 {
	suspended := j.SuspendedNs
	if j.State == pb.JobState_JOB_SUSPENDED {
		suspended += max(0, to-j.SuspendNs)
	}
	if to <= from || suspended <= 0 {
		return 1
	}
	return max(0, 1-float64(suspended)/float64(to-from))
}

// left adds the most that a running job may still use.
func left(s *Share, j *pb.JobRecord, list tres.List, nowNS int64) {
	if j.State == pb.JobState_JOB_RUNNING && j.TimeLimitS != pb.Unlimited {
		s.Left.add(list, max(0, float64(j.TimeLimitS)-max(0, seconds(nowNS-j.StartNs))))
	}
}

func seconds(ns int64) float64 { return float64(ns) / float64(time.Second) }

// Between returns the allocations in a window, in nanoseconds.
func (a *Accounting) Between(ctx context.Context, since, until int64, view func() *state.View) ([]*Share, error) {
	now := a.o.Now().UnixNano()
	sums := shares{}
	err := a.attempts(ctx, &pb.AccountingRequest{SinceNs: since, UntilNs: until, Duplicates: true}, view,
		func(j *pb.JobRecord, list tres.List) {
			from, to, holds := span(j, now)
			share := awake(j, from, to)
			s := sums.of(j)
			if cut := min(to, until) - max(from, since); cut > 0 {
				s.Used.add(list, seconds(cut)*share)
			}
			if holds {
				left(s, j, list, now)
			}
		})
	return sums.sorted(), err
}

// attempts calls f for each attempt that has had an allocation, with its resources.
func (a *Accounting) attempts(ctx context.Context, r *pb.AccountingRequest, view func() *state.View,
	f func(*pb.JobRecord, tres.List)) error {
	return a.Select(ctx, r, view, func(record []byte) error {
		j, err := decoded(record)
		if err != nil {
			return err
		}
		if j.StartNs == 0 || j.AllocTres == "" {
			return nil
		}
		list, err := tres.Parse(j.AllocTres)
		if err != nil {
			return nil // written by another version; the rest still counts
		}
		f(j, list)
		return nil
	})
}

// decayedSums cache the sums of attempts that ended long ago, so that a repeated query only reads later ones: an exporter queries every
// half minute.
type decayedSums struct {
	turn   chan struct{} // holds an element while a reader works; others wait and use its results
	fading Fading
	at     int64 // time for which sums hold
	until  int64 // attempts that ended before it are in sums, except those in held
	sums   map[shareKey]Sums
	// held are the attempts that held their allocations at that time. Their ends may turn out to lie before until: a job that is to be
	// requeued ended when that was ordered, but is only over when its last node is done; a node that was cut off reports old ends.
	held map[state.Attempt]struct{}
}

// settled is the time for which ended attempts are read again.
const settled = int64(6 * time.Hour)

// lateIDs is the number of jobs in one query for late ends.
const lateIDs = 1000

// Fading describes how usage decays.
type Fading struct {
	HalfLife time.Duration // PriorityDecayHalfLife: usage of that age counts half; 0: no decay
	SinceNS  int64         // PriorityUsageResetPeriod: earlier usage does not count
}

// ResetAt returns the latest time until now at which a period of PriorityUsageResetPeriod began, in nanoseconds; 0 without a period.
func ResetAt(period string, now time.Time) int64 {
	y, m, d := now.Date()
	switch period {
	case "DAILY":
	case "WEEKLY":
		d -= int(now.Weekday())
	case "MONTHLY":
		d = 1
	case "QUARTERLY":
		m, d = m-(m-1)%3, 1
	case "YEARLY":
		m, d = time.January, 1
	default:
		return 0
	}
	return time.Date(y, m, d, 0, 0, 0, 0, now.Location()).UnixNano()
}

// Merged returns the shares of these parts.
func Merged(parts []*Share) []*Share {
	sums := shares{}
	for _, p := range parts {
		s := sums.at(shareKey{account: p.Account, uid: p.UID, user: p.User})
		s.Used.Plus(p.Used)
		s.Left.Plus(p.Left)
	}
	return sums.sorted()
}

// Parts returns all allocations since usage was reset, decayed, by account, user, partition and QOS; and the time for which they hold.
func (a *Accounting) Parts(ctx context.Context, fading Fading, view func() *state.View) (parts []*Share, nowNS int64, err error) {
	d := &a.decayed
	if fading == (Fading{}) { // where usage decays, this is only for QOS with NoDecay
		d = &a.lasting
	}
	select {
	case d.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	defer func() { <-d.turn }()
	now := a.o.Now().UnixNano()
	if d.sums == nil || d.fading != fading || now < d.at {
		d.fading, d.at, d.until, d.sums, d.held = fading, now, fading.SinceNS, map[shareKey]Sums{}, nil
	}
	settle := max(now-settled, d.until)
	result, old, held, seen := shares{}, shares{}, map[state.Attempt]struct{}{}, map[state.Attempt]struct{}{}
	count := func(j *pb.JobRecord, list tres.List) {
		at := attemptOf(j)
		_, late := d.held[at]
		from, to, holds := span(j, now)
		if !holds && to < d.until && !late {
			return // in the sums; the request's resolution is a second
		}
		if late {
			seen[at] = struct{}{}
		}
		counted := 0.0
		if to > fading.SinceNS {
			counted = weighed(max(from, fading.SinceNS), to, now, fading.HalfLife) * awake(j, from, to)
		}
		into := result
		if !holds && to < settle {
			into = old
		}
		into.part(j).Used.add(list, counted)
		if holds {
			held[at] = struct{}{}
			left(into.part(j), j, list, now)
		}
	}
	if err := a.attempts(ctx, &pb.AccountingRequest{SinceNs: d.until, Duplicates: true}, view, count); err != nil {
		return nil, 0, err
	}
	if err := a.lateEnds(ctx, d.held, seen, view, count); err != nil {
		return nil, 0, err
	}
	if a.db.Load() != nil { // otherwise old attempts are read again
		d.held = held
		d.fold(old, now, settle)
	}
	for k, sums := range d.sums {
		result.at(k).Used.Plus(sums)
	}
	return result.sorted(), now, nil
}

// lateEnds calls f for those attempts that held allocations at the last query and that a query since then did not return.
func (a *Accounting) lateEnds(ctx context.Context, held, seen map[state.Attempt]struct{}, view func() *state.View,
	f func(*pb.JobRecord, tres.List)) error {
	var ids []string
	for at := range held {
		if _, ok := seen[at]; !ok {
			ids = append(ids, strconv.FormatUint(uint64(at.Job), 10))
		}
	}
	for some := range slices.Chunk(ids, lateIDs) {
		r := &pb.AccountingRequest{Ids: some, SinceNs: 1, UntilNs: math.MaxInt64, Duplicates: true}
		err := a.attempts(ctx, r, view, func(j *pb.JobRecord, list tres.List) {
			at := attemptOf(j)
			_, was := held[at]
			if _, ok := seen[at]; was && !ok {
				f(j, list)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// fold moves the sums to another time and adds what has settled since.
func (d *decayedSums) fold(old shares, now, settle int64) {
	fade := decay(now-d.at, d.fading.HalfLife)
	for _, sums := range d.sums {
		for name := range sums {
			sums[name] *= fade
		}
	}
	for k, s := range old {
		if d.sums[k] == nil {
			d.sums[k] = Sums{}
		}
		for name, v := range s.Used {
			d.sums[k][name] += v
		}
	}
	d.at, d.until = now, settle
}

// decay returns the rest of a unit of usage after a time.
func decay(ns int64, halfLife time.Duration) float64 {
	if halfLife <= 0 {
		return 1
	}
	return math.Exp2(-float64(ns) / float64(halfLife))
}

// weighed returns the number of seconds between two times, each weighted by its age: the integral of decay. A time in the future was
// stamped by a wrong clock: it counts as if it had ended now.
func weighed(from, to, now int64, halfLife time.Duration) float64 {
	if to > now {
		from, to = from-(to-now), now
	}
	if halfLife <= 0 {
		return seconds(to - from)
	}
	return (decay(now-to, halfLife) - decay(now-from, halfLife)) * halfLife.Seconds() / math.Ln2
}

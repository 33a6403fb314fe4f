package fairshare

import (
	"math"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/conf/tres"
	"github.com/sluice-hpc/sluice/ctld/acct"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/record"
)

// Lasts reports whether the use of a QOS never decays.
func Lasts(q *pb.QosRecord) bool { return slices.Contains(q.Flags, "NoDecay") }

// Charge multiplies usage by the factors of its QOS.
func Charge(p *state.Policy, parts []*acct.Share) {
	for _, s := range parts {
		f := state.UsageFactor(p.QOS(strings.ToLower(s.QOS)))
		if f == (record.Factor{}) {
			continue
		}
		for _, sums := range []acct.Sums{s.Used, s.Left} {
			for name := range sums {
				sums[name] *= f.Float()
			}
		}
	}
}

// Past returns the usage in accounting until a moment, less what the view itself counts until then: the usage before counting, fully
// decayed. It covers only the QOS that decay, or only those that do not.
func Past(v *state.View, rows []*acct.Share, nowNS int64, fades bool) *state.Past {
	policy := v.Policy()
	assocs, qoses := map[uint32]acct.Sums{}, map[uint32]acct.Sums{}
	add := func(to map[uint32]acct.Sums, id uint32, used acct.Sums) {
		if to[id] == nil {
			to[id] = acct.Sums{}
		}
		for name, n := range used {
			to[id][name] += n
		}
	}
	count := func(user, account, partition, qos string, used acct.Sums) {
		for up := range policy.CountsFor(user, strings.ToLower(account), partition) {
			add(assocs, up.Id, used)
		}
		v.QOSCounting(qos, partition, func(q *pb.QosRecord) { add(qoses, q.Id, used) })
	}
	for _, r := range rows {
		count(r.User, r.Account, r.Partition, r.QOS, r.Used)
	}
	for j := range v.Jobs.All() {
		if over := leaving(j, nowNS); over != nil {
			count(j.Spec.GetUser(), state.AccountOf(j.Spec), j.Partition, j.Spec.GetQos(), over)
		}
	}
	nowS := (nowNS + 1e9 - 1) / 1e9 // anything counted later is not in rows
	p := &state.Past{Counting: v.Counting(), Assoc: map[uint32]map[string]int64{}, QOS: map[uint32]map[string]int64{}}
	for _, a := range policy.Assocs() {
		before(p.Assoc, a.Id, assocs[a.Id], v.AssocTime(a.Id), nowS)
	}
	for _, q := range policy.Qoses() {
		if Lasts(q) != fades {
			before(p.QOS, q.Id, qoses[q.Id], v.QOSTime(q.Id), nowS)
		}
	}
	return p
}

// leaving returns what accounting counts too much for an attempt that was told to end and will be requeued: in accounting it holds its
// allocation until its last node is done, which may take long, but nobody should pay for that.
func leaving(j *pb.JobRecord, nowNS int64) acct.Sums {
	if j.State.Terminal() || !state.Active(j) || state.Pending(j) || j.StopReason == "" || j.EndNs == 0 || j.EndNs >= nowNS {
		return nil
	}
	held, err := tres.Parse(j.AllocTres)
	if err != nil {
		return nil
	}
	over := acct.Sums{}
	seconds := float64(nowNS-j.EndNs) / 1e9
	for _, it := range held {
		over[it.Name] = -float64(it.Count) * seconds
	}
	over[acct.Wall] = -seconds
	return over
}

// before stores the usage less what is counted.
func before(to map[uint32]map[string]int64, id uint32, used acct.Sums, counted *state.TimeUse, nowS int64) {
	sums := map[string]int64{}
	for name, n := range used {
		sums[name] = int64(math.Floor(min(n, math.MaxInt64/4)))
	}
	for _, name := range counted.Names() {
		sums[name] -= counted.Total(name, nowS)
	}
	if len(sums) > 0 {
		to[id] = sums
	}
}

package fairshare

import (
	"math"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/ctld/acct"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Lasts reports whether what is used of a QOS counts for ever.
func Lasts(q *pb.QosRecord) bool { return slices.Contains(q.Flags, "NoDecay") }

// Past is what accounting knows until a moment, less what the view counts by itself until then: what was used before, with all decay. Of
// the QOS only those are in it that fade, or those that do not.
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
	for _, r := range rows {
		for up := range policy.Chain(policy.AssocOf(r.User, strings.ToLower(r.Account), r.Partition)) {
			add(assocs, up.Id, r.Used)
		}
		if q := policy.QOS(strings.ToLower(r.QOS)); q != nil {
			add(qoses, q.Id, r.Used)
		}
	}
	nowS := (nowNS + 1e9 - 1) / 1e9 // what is counted from then on is not in rows
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

// before notes what was used less what is counted.
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

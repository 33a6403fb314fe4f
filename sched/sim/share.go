package sim

import (
	"cmp"
	"math"
	"slices"

	"github.com/sluice-hpc/sluice/sched/record"
)

// defaultHalfLifeS is the default of PriorityDecayHalfLife (slurm.conf(5)): 7 days.
const defaultHalfLifeS = 7 * 86400

// ledger keeps the users' usage, which halves in each half-life, for fair share: processor seconds of finished and running jobs.
type ledger struct {
	halfLife float64 // seconds
	users    map[string]*usage
	all      usage
	factors  map[string]float64 // as last computed
	period   int64
}

// usage is one user's: its value at a time, and the number of processors in use since then.
type usage struct {
	spent float64
	at    int64
	procs float64
}

// until advances the usage to now.
func (u *usage) until(now int64, halfLife float64) {
	left := math.Exp2(-float64(now-u.at) / halfLife)
	u.spent = u.spent*left + u.procs*(1-left)*halfLife/math.Ln2
	u.at = now
}

// occupy notes that a user takes procs more processors from now on (fewer if negative).
func (l *ledger) occupy(user string, procs int, now int64) {
	if l == nil {
		return
	}
	if l.users[user] == nil {
		l.users[user] = &usage{at: now}
	}
	for _, u := range []*usage{l.users[user], &l.all} {
		u.until(now, l.halfLife)
		u.procs += float64(procs)
	}
}

// shares returns the fair-share factors of users with waiting jobs, with equal shares for all users seen so far: 2^(-usage/share), which is
// priority/multifactor's without FairTree. They are computed once in each calculation period, and for new users in it.
func (l *ledger) shares(pending []*record.Job, period int64) []record.Share {
	if period != l.period {
		l.period, l.factors = period, map[string]float64{}
		l.all.until(max(period, l.all.at), l.halfLife)
	}
	var out []record.Share
	listed := map[[2]string]bool{}
	for _, j := range pending {
		if key := [2]string{j.Account, j.User}; !listed[key] {
			listed[key] = true
			out = append(out, record.Share{Account: j.Account, User: j.User, Factor: l.factor(j.User)})
		}
	}
	slices.SortFunc(out, func(a, b record.Share) int {
		return cmp.Or(cmp.Compare(a.Account, b.Account), cmp.Compare(a.User, b.User))
	})
	return out
}

func (l *ledger) factor(user string) float64 {
	if f, known := l.factors[user]; known {
		return f
	}
	f := 1.0
	if u := l.users[user]; u != nil && l.all.spent > 0 {
		u.until(max(l.period, u.at), l.halfLife)
		f = math.Exp2(-u.spent / l.all.spent * float64(len(l.users)))
	}
	l.factors[user] = f
	return f
}

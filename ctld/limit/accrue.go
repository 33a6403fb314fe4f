package limit

import (
	"strings"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Accrue returns the limits on the number of waiting jobs that gain priority by age together with a job: those with an AccrueTime. Empty:
// no limit. As in Slurm, the partition's QOS does not matter, the QOS's limit for a user replaces MaxJobsAccrue, and its limit for an
// account or in total replaces each GrpJobsAccrue.
func Accrue(v *state.View, j *pb.JobRecord) (out []Limit) {
	p := v.Policy()
	if !v.Settings.EnforceLimits || !p.Accrues() {
		return nil
	}
	q := p.QOS(strings.ToLower(j.Spec.GetQos()))
	a := p.AssocOf(j.Spec.GetUser(), state.AccountOf(j.Spec), j.Partition)
	add := func(values []*pb.PolicyValue, name string, g Group) bool {
		for _, val := range values {
			if val.Name == name {
				out = append(out, Limit{Group: g, Most: int64(val.Value)})
				return true
			}
		}
		return false
	}
	user := add(q.GetValues(), "MaxJobsAccruePerUser", Group{QOS: q.GetId(), User: j.Spec.GetUser()})
	account := add(q.GetValues(), "MaxJobsAccruePerAccount", Group{QOS: q.GetId(), Account: state.AccountOf(j.Spec)})
	all := add(q.GetValues(), "GrpJobsAccrue", Group{QOS: q.GetId()})
	if a == nil {
		return out
	}
	if !user {
		add(p.Inherited(a).Values, "MaxJobsAccrue", Group{Assoc: a.Id})
	}
	for up := range p.Chain(a) {
		if !account && !all {
			add(up.Values, "GrpJobsAccrue", Group{Assoc: up.Id})
		}
	}
	return out
}

// AccruesIn returns the groups in which a job counts for the limits of Accrue.
func AccruesIn(v *state.View, j *pb.JobRecord) []Group {
	p, user, account := v.Policy(), j.Spec.GetUser(), state.AccountOf(j.Spec)
	q := p.QOS(strings.ToLower(j.Spec.GetQos())).GetId()
	out := []Group{{QOS: q}, {QOS: q, User: user}, {QOS: q, Account: account}}
	for up := range p.CountsFor(user, account, j.Partition) {
		out = append(out, Group{Assoc: up.Id})
	}
	return out
}

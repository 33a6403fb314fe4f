package admit

import (
	"cmp"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/ctld/convert"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

func fillAccount(policy *state.Policy, spec *pb.JobSpec) {
	account := strings.ToLower(spec.Account)
	if account == "" {
		account = cmp.Or(policy.User(spec.User).GetDefaultAccount(), DefaultAccount)
	}
	if spec.Account == "" || policy.Account(account) != nil {
		spec.Account = account
	}
}

// checkPolicy sets account and QOS, and refuses those that AccountingStorageEnforce does not let the user have. Without it they are only
// names: any value is kept, as in a cluster that defines nothing.
func checkPolicy(v *state.View, spec *pb.JobSpec) *pb.Problem {
	policy := v.Policy()
	fillAccount(policy, spec)
	assoc := Association(v, spec)
	if assoc == nil && v.Settings.EnforceAssocs {
		return pb.NewProblem(pb.CodeInvalidAccount, "user %s is not in account %s", spec.User, spec.Account).
			WithHint("sacctmgr show assoc user=%s lists the accounts of the user", spec.User)
	}
	if spec.Qos == "" {
		spec.Qos = DefaultQOS
		if assoc != nil {
			spec.Qos = policy.DefaultQOSOf(assoc)
		}
	} else if policy.QOS(strings.ToLower(spec.Qos)) != nil {
		spec.Qos = strings.ToLower(spec.Qos)
	}
	switch {
	case !v.Settings.EnforceQOS:
	case policy.QOS(spec.Qos) == nil:
		return pb.NewProblem(pb.CodeInvalidQOS, "there is no QOS %s", spec.Qos).WithHint("sacctmgr show qos lists them")
	case !slices.Contains(policy.QOSOf(assoc), spec.Qos):
		return pb.NewProblem(pb.CodeInvalidQOS, "user %s may use the QOS %s in account %s, not %s", spec.User,
			strings.Join(policy.QOSOf(assoc), ","), spec.Account, spec.Qos)
	case spec.Reservation == "" && slices.Contains(policy.QOS(spec.Qos).Flags, "RequiresReservation"):
		return pb.NewProblem(pb.CodeInvalidQOS, "jobs of the QOS %s need a reservation", spec.Qos).WithHint("--reservation=NAME")
	}
	return nil
}

// Association returns the association in which a job counts, nil if its user has none in its account: that of the first of its partitions
// that has its own, or else the one for all. While only root has associations, every user is in the account root.
func Association(v *state.View, spec *pb.JobSpec) *pb.AssocRecord {
	for name := range strings.SplitSeq(convert.PartitionList(v, spec), ",") {
		if a := v.Policy().AssocOf(spec.User, state.AccountOf(spec), name); a != nil {
			return a
		}
	}
	return nil
}

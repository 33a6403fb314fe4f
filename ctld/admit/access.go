package admit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// mayUse refuses a job that a partition does not take (slurm.conf(5)). By accounts and QOS it refuses only with EnforcePartLimits: without,
// such a job waits, as in Slurm (Barred).
func mayUse(v *state.View, p *pb.PartitionRecord, spec *pb.JobSpec) *pb.Problem {
	switch {
	case p.State == "INACTIVE" || p.State == "DRAIN":
		return pb.NewProblem(pb.CodePartClosed, "partition %s is %s and takes no new jobs", p.Name, p.State)
	case p.RootOnly && spec.Uid != 0:
		return pb.NewProblem(pb.CodeAccessDenied, "partition %s is for root only", p.Name)
	case v.Settings.DisableRootJobs && spec.Uid == 0:
		return pb.NewProblem(pb.CodeUserID, "this cluster takes no jobs of root (DisableRootJobs)")
	case p.DisableRootJobs && spec.Uid == 0:
		return pb.NewProblem(pb.CodeUserID, "partition %s takes no jobs of root", p.Name)
	case p.ReqResv && spec.Reservation == "":
		return pb.NewProblem(pb.CodeAccessDenied, "partition %s is for jobs in a reservation", p.Name).WithHint("name one: --reservation")
	case !fromHost(p.AllowAllocNodes, spec.AllocNode):
		return pb.NewProblem(pb.CodeAccessDenied, "partition %s takes jobs from %s, not from %s", p.Name, p.AllowAllocNodes, spec.AllocNode)
	case !inGroups(v.PartitionGIDs(p.Name), spec):
		return pb.NewProblem(pb.CodePartitionGroup, "partition %s is for the groups %s", p.Name, p.AllowGroups)
	}
	if why := Barred(p, spec); why != "" && v.Settings.EnforcePartLimits {
		if strings.HasPrefix(why, "Job's QOS") {
			return pb.NewProblem(pb.CodeInvalidQOS, "%s", why)
		}
		return pb.NewProblem(pb.CodeInvalidAccount, "%s", why)
	}
	return nil
}

// Barred is why a partition's rules on accounts and QOS keep a job out, in the words in which Slurm gives it as the reason of a job that
// waits; "" = they do not.
func Barred(p *pb.PartitionRecord, spec *pb.JobSpec) string {
	for _, rule := range []struct{ what, allow, deny, has string }{
		{"account", p.AllowAccounts, p.DenyAccounts, cmp.Or(spec.Account, DefaultAccount)},
		{"QOS", p.AllowQos, p.DenyQos, cmp.Or(spec.Qos, DefaultQOS)},
	} {
		switch {
		case rule.allow != "" && !strings.EqualFold(rule.allow, "ALL"): // then what is denied does not count
			if !oneOf(rule.allow, rule.has) {
				return fmt.Sprintf("Job's %s not permitted to use this partition (%s allows %s not %s)", rule.what, p.Name, rule.allow, rule.has)
			}
		case oneOf(rule.deny, rule.has):
			return fmt.Sprintf("Job's %s not permitted to use this partition (%s denies %s including %s)", rule.what, p.Name, rule.deny, rule.has)
		}
	}
	return ""
}

func oneOf(list, word string) bool {
	return slices.ContainsFunc(strings.Split(list, ","), func(s string) bool { return s != "" && strings.EqualFold(s, word) })
}

// fromHost: a list of hosts names the one from which a job was submitted; without a list all do.
func fromHost(list, host string) bool {
	if list == "" || strings.EqualFold(list, "ALL") {
		return true
	}
	hosts, err := hostlist.Expand(list)
	return err == nil && slices.Contains(hosts, host)
}

package admit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/ctld/convert"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

func inGroups(allowed []uint32, spec *pb.JobSpec) bool {
	if allowed == nil || spec.Uid == 0 {
		return true
	}
	for _, g := range allowed {
		if g == spec.Gid {
			return true
		}
		for _, s := range spec.Groups {
			if s == g {
				return true
			}
		}
	}
	return false
}

// checkPartitions refuses a job that its partitions do not accept. A partition that accepts no jobs now (INACTIVE, DRAIN) is skipped if the
// list names others. Of the others one has to accept the job, or with EnforcePartLimits=ALL each of them, as in a real Slurm 22.05.
func checkPartitions(v *state.View, spec *pb.JobSpec) *pb.Problem {
	list := convert.PartitionList(v, spec)
	if list == "" {
		return pb.NewProblem(pb.CodeNoDefaultPartition,
			"no partition was named, and slurm.conf has no default partition (Default=YES)").WithHint("use one of: %s", partitionNames(v))
	}
	names := strings.Split(list, ",")
	for _, name := range names {
		if v.Partition(name) == nil {
			return pb.NewProblem(pb.CodeInvalidPartition, "there is no partition %q", name).WithHint("use one of: %s",
				partitionNames(v)).WithLead("invalid partition specified: %s", name)
		}
	}
	open := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return closed(v.Partition(name)) })
	if len(open) == 0 {
		p := v.Partition(names[0])
		return pb.NewProblem(pb.CodePartClosed, "partition %s is %s and accepts no new jobs", p.Name, p.State)
	}
	var first *pb.Problem
	taken := false
	for _, name := range open {
		p := Refusal(v, v.Partition(name), spec)
		taken = taken || p == nil
		if first == nil {
			first = p
		}
	}
	if first != nil && (!taken || v.Settings.EnforcePartLimits == "ALL") {
		return first
	}
	if len(open) < len(names) {
		spec.Partition = strings.Join(open, ",")
	}
	return nil
}

// First returns the partition whose defaults a checked job gets: the first of its list that accepts it.
func First(v *state.View, spec *pb.JobSpec) *pb.PartitionRecord {
	var first *pb.PartitionRecord
	for _, name := range strings.Split(convert.PartitionList(v, spec), ",") {
		p := v.Partition(name)
		if p != nil && Refusal(v, p, spec) == nil {
			return p
		}
		if first == nil {
			first = p
		}
	}
	return first
}

// Refusal returns the reason why a partition does not accept a job: its access rules and, with EnforcePartLimits, its limits; nil when it
// does. Memory is left out: only the scheduler knows how much a job needs on a node (Feasible).
func Refusal(v *state.View, p *pb.PartitionRecord, spec *pb.JobSpec) *pb.Problem {
	if problem := mayUse(v, p, spec); problem != nil || !Enforced(v) {
		return problem
	}
	return exceeds(v, p, spec)
}

// Enforced reports whether a job above a partition's limits is refused at submission. Otherwise it waits.
func Enforced(v *state.View) bool {
	return v.Settings.EnforcePartLimits == "ANY" || v.Settings.EnforcePartLimits == "ALL"
}

// Usable reports whether the partition accepts such jobs at all, whatever its limits.
func Usable(v *state.View, p *pb.PartitionRecord, spec *pb.JobSpec) bool {
	return mayUse(v, p, spec) == nil
}

func closed(p *pb.PartitionRecord) bool { return p.State == "INACTIVE" || p.State == "DRAIN" }

// mayUse refuses a job whose user, host or reservation the partition excludes (slurm.conf(5)).
func mayUse(v *state.View, p *pb.PartitionRecord, spec *pb.JobSpec) *pb.Problem {
	switch {
	case p.RootOnly && spec.Uid != 0:
		return pb.NewProblem(pb.CodeAccessDenied, "partition %s is reserved for root", p.Name)
	case v.Settings.DisableRootJobs && spec.Uid == 0:
		return pb.NewProblem(pb.CodeUserID, "this cluster accepts no jobs from root (DisableRootJobs)")
	case p.DisableRootJobs && spec.Uid == 0:
		return pb.NewProblem(pb.CodeUserID, "partition %s accepts no jobs from root", p.Name)
	case p.ReqResv && spec.Reservation == "":
		return pb.NewProblem(pb.CodeAccessDenied, "partition %s accepts only jobs in a reservation",
			p.Name).WithHint("name one: --reservation")
	case !fromHost(p.AllowAllocNodes, spec.AllocNode):
		return pb.NewProblem(pb.CodeAccessDenied, "partition %s accepts jobs from %s, not from %s", p.Name, p.AllowAllocNodes,
			spec.AllocNode)
	case !inGroups(v.PartitionGIDs(p.Name), spec):
		return pb.NewProblem(pb.CodePartitionGroup, "partition %s is reserved for the groups %s", p.Name, p.AllowGroups)
	}
	return nil
}

// exceeds refuses a job above a partition's limits: accounts, QOS, nodes, CPUs, time.
func exceeds(v *state.View, p *pb.PartitionRecord, spec *pb.JobSpec) *pb.Problem {
	if why := Barred(p, spec); why != "" {
		if strings.HasPrefix(why, "Job's QOS") {
			return pb.NewProblem(pb.CodeInvalidQOS, "%s", why)
		}
		return pb.NewProblem(pb.CodeInvalidAccount, "%s", why)
	}
	nodes := v.PartitionNodes(p.Name)
	most := uint32(len(nodes))
	if p.MaxNodes != 0 && p.MaxNodes < most {
		most = p.MaxNodes
	}
	asked := uint64(max(spec.NumTasks, 1)) * uint64(max(spec.CpusPerTask, 1))
	switch {
	case spec.MinNodes > most, spec.MaxNodes > most && p.MaxNodes == most:
		return pb.NewProblem(pb.CodeNodeCount, "partition %s has or allows %d nodes, %d were requested", p.Name, most,
			max(spec.MinNodes, spec.MaxNodes))
	case spec.MinNodes > 0 && spec.MinNodes < p.MinNodes:
		return pb.NewProblem(pb.CodeNodeCount, "partition %s requires at least %d nodes (MinNodes), %d were requested", p.Name, p.MinNodes,
			spec.MinNodes)
	case !spec.Overcommit && len(nodes) > 0 && asked > uint64(len(nodes)) && asked > cpusOf(v, nodes): // a node has at least one
		return pb.NewProblem(pb.CodeTooManyCPUs, "partition %s has %d CPUs, %d were requested", p.Name, cpusOf(v, nodes), asked)
	case p.MaxTimeS != pb.Unlimited && spec.TimeLimitS > p.MaxTimeS:
		return pb.NewProblem(pb.CodeInvalidTimeLimit, "partition %s allows %d minutes, %d were requested", p.Name, p.MaxTimeS/60,
			spec.TimeLimitS/60)
	}
	return nil
}

func cpusOf(v *state.View, nodes []string) (cpus uint64) {
	for _, name := range nodes {
		cpus += uint64(v.Node(name).Cpus)
	}
	return cpus
}

// Barred returns the reason why a partition's rules on accounts and QOS exclude a job, in the words of Slurm's reason for a pending job; ""
// = they do not.
func Barred(p *pb.PartitionRecord, spec *pb.JobSpec) string {
	for _, rule := range []struct{ what, allow, deny, has string }{
		{"account", p.AllowAccounts, p.DenyAccounts, cmp.Or(spec.Account, DefaultAccount)},
		{"QOS", p.AllowQos, p.DenyQos, cmp.Or(spec.Qos, DefaultQOS)},
	} {
		switch {
		case rule.allow != "" && !strings.EqualFold(rule.allow, "ALL"): // the list of denials is then ignored
			if !oneOf(rule.allow, rule.has) {
				return fmt.Sprintf("Job's %s not permitted to use this partition (%s allows %s not %s)", rule.what, p.Name, rule.allow,
					rule.has)
			}
		case oneOf(rule.deny, rule.has):
			return fmt.Sprintf("Job's %s not permitted to use this partition (%s denies %s including %s)", rule.what, p.Name, rule.deny,
				rule.has)
		}
	}
	return ""
}

func oneOf(list, word string) bool {
	return slices.ContainsFunc(strings.Split(list, ","), func(s string) bool { return s != "" && strings.EqualFold(s, word) })
}

// fromHost reports whether a list of hosts names the one from which a job was submitted; an empty list names all.
func fromHost(list, host string) bool {
	if list == "" || strings.EqualFold(list, "ALL") {
		return true
	}
	hosts, err := hostlist.Expand(list)
	return err == nil && slices.Contains(hosts, host)
}

// Open returns those of a job's partitions whose rules on accounts and QOS do not exclude it; why is the first rule that does. Of a list
// only the partitions that accept such jobs count: one is enough for a submission.
func Open(v *state.View, names []string, spec *pb.JobSpec) (open []string, why string) {
	for _, name := range names {
		bar := ""
		if p := v.Partition(name); p != nil {
			bar = Barred(p, spec)
		}
		if bar == "" {
			open = append(open, name)
		}
		why = cmp.Or(why, bar)
	}
	if len(names) > 1 {
		usable := slices.DeleteFunc(slices.Clone(open), func(name string) bool {
			p := v.Partition(name)
			return p != nil && !Usable(v, p, spec)
		})
		if len(usable) > 0 {
			open = usable
		}
	}
	return open, why
}

// Package admit decides whether a job may be submitted, updated or requeued. It fills in the defaults of partition and cluster, and refuses
// a job that can never run, with the request and the cluster's resources in the message. Pure.
package admit

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/conf/tres"
	"github.com/sluice-hpc/sluice/ctld/convert"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/fit"
	"github.com/sluice-hpc/sluice/sched/sizing"
)

// Job makes the record of a new job from a specification, which it completes in place. The reactor sets id, times and priority.
func Job(v *state.View, spec *pb.JobSpec, requestID string) (*pb.JobRecord, *pb.Problem) {
	if p := Text(spec); p != nil {
		return nil, p
	}
	if p := assocDefaults(v, spec); p != nil {
		return nil, p
	}
	j := &pb.JobRecord{Spec: spec, State: pb.JobState_JOB_PENDING, Reason: "None", RequestId: requestID}
	if p := New(v, j); p != nil {
		return nil, p
	}
	return j, nil
}

// New completes the record of a job that is not submitted yet, including the defaults that only new jobs take from their partition. The
// record must be the caller's own. For a job that was admitted on an older state it checks and completes the record again.
func New(v *state.View, j *pb.JobRecord) *pb.Problem {
	if p := Settle(v, j, j.Spec.Hold); p != nil {
		return p
	}
	j.TimeLimitS = Limit(v.Partition(j.Partition), j.Spec)
	return nil
}

// Settle checks and completes the specification of a record, which must be the caller's own: everything requested has to exist, some nodes
// have to be able to hold it (unless the job is held), and the derived values are written into the record. Every new or changed request
// goes through it.
func Settle(v *state.View, j *pb.JobRecord, held bool) *pb.Problem {
	if p := Check(v, j.Spec); p != nil {
		return p
	}
	part := complete(v, j.Spec)
	if p := checkGPUCounts(j.Spec); p != nil { // also of nodes that a constraint counts: otherwise every later update would be refused
		return p
	}
	c := sizing.Count(convert.Request(j.Spec, v.Users()))
	if p := checkTotals(j.Spec, &c); p != nil {
		return p
	}
	nodes, p := Feasible(v, j.Spec, held)
	if p != nil {
		return p
	}
	j.Partition = part.Name
	size(v.Settings, j, &c, nodes)
	return nil
}

// Limits of a job's totals. Records and their readers count in 32 bits.
const (
	maxTotal    = math.MaxUint32 - 2 // higher values have special meanings in Slurm
	maxTotalMiB = 1 << 50
)

// checkTotals refuses a request whose values are valid by themselves but overflow when they are multiplied.
func checkTotals(s *pb.JobSpec, c *sizing.Counts) *pb.Problem {
	switch {
	case c.CPUs > maxTotal:
		return pb.NewProblem(pb.CodeTooManyCPUs, "%d tasks on %d nodes with %d CPUs each are %d CPUs, at most %d can be requested", c.Tasks,
			c.Nodes, max(s.CpusPerTask, 1), c.CPUs, int64(maxTotal))
	case c.Tasks > maxTotal:
		return pb.NewProblem(pb.CodeTooManyCPUs, "%d nodes with %d tasks each are %d tasks, at most %d can be requested", c.Nodes,
			s.NtasksPerNode, c.Tasks, int64(maxTotal))
	case c.MemMiB > maxTotalMiB:
		return pb.NewProblem(pb.CodeInvalidMemory, "%d MiB of memory in all (%d CPUs on %d nodes), at most %d can be requested", c.MemMiB,
			c.CPUs, c.Nodes, int64(maxTotalMiB))
	}
	for _, g := range c.Gres {
		if g.Count > maxTotal {
			return pb.NewProblem(pb.CodeInvalidGres, "%d of %s in all (%d tasks on %d nodes), at most %d can be requested", g.Count, g.Name,
				c.Tasks, c.Nodes, int64(maxTotal))
		}
	}
	return nil
}

// complete sets the open values of a checked request, and returns the partition that it is shown in and whose defaults it gets (First).
func complete(v *state.View, spec *pb.JobSpec) *pb.PartitionRecord {
	part := First(v, spec)
	gpuDefaults(v.Settings, part, spec)
	defaults(v.Settings, part, spec)
	memoryPerCPU(v, part, spec)
	spec.Switches = Switches(v.Settings, spec.Switches)
	countedNodes(spec)
	return part
}

// countedNodes raises the number of nodes to those that the constraint counts, unless -N allows no more: -C 'intel*2' is two nodes. Counts
// in brackets are of different nodes, others may be of the same.
func countedNodes(spec *pb.JobSpec) {
	if !strings.Contains(spec.Features, "*") || spec.NodesSet != "" {
		return
	}
	con, err := fit.ParseConstraint(spec.Features)
	if err != nil || len(con.Alternatives) != 1 {
		return // Feasible refuses it, or no single alternative can be chosen here
	}
	sum, most := 0, 0
	for _, c := range con.Alternatives[0].Counts {
		sum, most = sum+c.N, max(most, c.N)
	}
	if strings.HasPrefix(spec.Features, "[") {
		most = sum
	}
	n := clamp32(int64(most))
	if spec.MaxNodes == 0 || n <= spec.MaxNodes {
		spec.MinNodes = max(spec.MinNodes, n)
	}
	if n > 0 && spec.MaxNodes == 0 && spec.NumTasks == 0 && spec.TresPerJob == "" { // nothing that could need more
		spec.MaxNodes = spec.MinNodes
	}
}

// memoryPerCPU gives a job with more memory per CPU than MaxMemPerCPU allows the number of CPUs for its memory (slurm.conf(5),
// MaxMemPerCPU): for each task, or, with --mem, on each node.
func memoryPerCPU(v *state.View, p *pb.PartitionRecord, spec *pb.JobSpec) {
	most := p.MaxMemPerCpuMib
	if most == 0 && p.MaxMemPerNodeMib == 0 {
		most = v.Settings.MaxMemPerCPUMiB
	}
	node := spec.MemPerNodeMib
	if spec.MemAll {
		for i, name := range v.PartitionNodes(p.Name) {
			if n := v.Node(name); i == 0 || n.RealMemoryMib < node {
				node = n.RealMemoryMib
			}
		}
	}
	switch {
	case most == 0:
	case spec.MemPerCpuMib > most:
		n := (spec.MemPerCpuMib + most - 1) / most
		spec.CpusPerTask = uint32(min(uint64(max(spec.CpusPerTask, 1))*n, maxCount))
		spec.MemPerCpuMib = (spec.MemPerCpuMib + n - 1) / n
	case node > most:
		spec.PnMinCpus = max(spec.PnMinCpus, uint32(min((node+most-1)/most, maxCount)))
	}
}

// DefaultAccount and DefaultQOS are the defaults of a job; every new Slurm database has them.
const (
	DefaultAccount = state.RootAccount
	DefaultQOS     = state.NormalQOS
)

// Check refuses a specification with unknown names or impossible values. It is also used for updates.
func Check(v *state.View, spec *pb.JobSpec) *pb.Problem {
	if p := checkPolicy(v, spec); p != nil {
		return p
	}
	if p := checkPartitions(v, spec); p != nil {
		return p
	}
	if uid := v.Settings.SlurmdUID; uid != 0 && spec.Uid != uid {
		return pb.NewProblem(pb.CodeUserID, "the node daemons of this cluster run as uid %d (SlurmdUser) and cannot run jobs of uid %d",
			uid, spec.Uid).WithHint("submit as that user, or use a cluster started by root")
	}
	for _, check := range []func(*state.View, *pb.JobSpec) *pb.Problem{checkCounts, checkMemory, checkTimes, checkNodes, checkLists,
		checkPreferred, checkFeatures, checkGresText, checkGres, checkLicenses, checkReservation} {
		if p := check(v, spec); p != nil {
			return p
		}
	}
	return nil
}

func partitionNames(v *state.View) string {
	var names []string
	for _, p := range v.Partitions() {
		if !p.Hidden {
			names = append(names, p.Name)
		}
	}
	return strings.Join(names, ", ")
}

// maxCount bounds tasks, nodes and CPUs, so that products of two stay exact.
const maxCount = 1 << 24

func checkCounts(_ *state.View, s *pb.JobSpec) *pb.Problem {
	for _, c := range []struct {
		what string
		n    uint32
	}{{"tasks (-n)", s.NumTasks}, {"CPUs per task (-c)", s.CpusPerTask}, {"tasks per node", s.NtasksPerNode}, {"nodes (-N)", s.MinNodes},
		{"nodes (-N)", s.MaxNodes}, {"CPUs per node (--mincpus)", s.PnMinCpus}, {"tasks per GPU (--ntasks-per-gpu)", s.NtasksPerTres},
		{"sockets per node", s.SocketsPerNode}, {"cores per socket", s.CoresPerSocket}, {"threads per core", s.ThreadsPerCore}} {
		if c.n > maxCount {
			return pb.NewProblem(pb.CodeTooManyCPUs, "%d %s, at most %d can be requested", c.n, c.what, maxCount)
		}
	}
	if s.MaxNodes != 0 && s.MaxNodes < s.MinNodes {
		return pb.NewProblem(pb.CodeNodeCount, "at least %d and at most %d nodes", s.MinNodes, s.MaxNodes)
	}
	return nil
}

func checkMemory(v *state.View, s *pb.JobSpec) *pb.Problem {
	n := 0
	for _, m := range []uint64{s.MemPerNodeMib, s.MemPerCpuMib, s.MemPerGpuMib} {
		if m > tres.MaxMiB {
			return pb.NewProblem(pb.CodeInvalidMemory, "%d MiB of memory", m)
		}
		if m > 0 {
			n++
		}
	}
	if n > 1 {
		return pb.NewProblem(pb.CodeInvalidMemory, "--mem, --mem-per-cpu and --mem-per-gpu are mutually exclusive")
	}
	return nil
}

func checkTimes(v *state.View, s *pb.JobSpec) *pb.Problem {
	if s.TimeMinS != 0 && s.TimeLimitS != 0 && s.TimeMinS > s.TimeLimitS {
		return pb.NewProblem(pb.CodeInvalidTimeMin, "--time-min is longer than --time")
	}
	return nil
}

// checkNodes refuses unknown nodes, and sorts the lists without duplicates, as views show them.
func checkNodes(v *state.View, s *pb.JobSpec) *pb.Problem {
	for _, list := range []*string{&s.ReqNodes, &s.ExcNodes} {
		if *list == "" {
			continue
		}
		names, err := hostlist.Expand(*list)
		if err != nil {
			return pb.NewProblem(pb.CodeInvalidNodeName, "%v", err)
		}
		for _, n := range names {
			if v.Node(n) == nil {
				return pb.NewProblem(pb.CodeInvalidNodeName, "there is no node %s", n)
			}
		}
		slices.Sort(names)
		*list = hostlist.FoldSorted(slices.Compact(names))
	}
	return nil
}

func checkLicenses(v *state.View, s *pb.JobSpec) *pb.Problem { return Licenses(v, s.Licenses) }

// Licenses refuses licenses that the cluster does not have, or not in that number.
func Licenses(v *state.View, text string) *pb.Problem {
	if text == "" {
		return nil
	}
	for _, part := range strings.Split(text, ",") {
		name, count, counted := strings.Cut(part, ":")
		n, err := strconv.ParseUint(count, 10, 32)
		if !counted || count == "" {
			n, err = 1, nil
		}
		if err != nil || name == "" {
			return pb.NewProblem(pb.CodeInvalidLicenses, "%q", part).WithHint("write name:count,…")
		}
		have := -1
		for _, l := range v.Settings.Licenses {
			if l.Name == name {
				have = l.Count
			}
		}
		switch {
		case have < 0:
			return pb.NewProblem(pb.CodeInvalidLicenses, "there is no license %q", name).WithHint("scontrol show licenses lists them")
		case n > uint64(have):
			return pb.NewProblem(pb.CodeInvalidLicenses, "%d licenses %q, the cluster has %d", n, name, have)
		}
	}
	return nil
}

// CountLicenses adds the numbers in a list of licenses, "name:count,name".
func CountLicenses(sum map[string]uint64, text string) {
	if text == "" {
		return
	}
	for _, part := range strings.Split(text, ",") {
		name, count, counted := strings.Cut(part, ":")
		n, err := strconv.ParseUint(count, 10, 32)
		if !counted || err != nil {
			n = 1
		}
		sum[name] += n
	}
}

// checkReservation refuses a reservation that does not exist or excludes the user; root is no exception, as in Slurm.
func checkReservation(v *state.View, s *pb.JobSpec) *pb.Problem {
	if s.Reservation == "" {
		return nil
	}
	if strings.Contains(s.Reservation, ",") {
		return pb.NewProblem(pb.CodeResvInvalid, "%q: a job can be in one reservation", s.Reservation)
	}
	r := v.Reservation(s.Reservation)
	if r == nil {
		return pb.NewProblem(pb.CodeResvInvalid, "there is no reservation %q",
			s.Reservation).WithHint("scontrol show reservation lists them")
	}
	inGroup := slices.ContainsFunc(append([]uint32{s.Gid}, s.Groups...), func(g uint32) bool { return slices.Contains(r.GroupIds, g) })
	who := r.Users == "" && r.Groups == "" || listed(r.Users, s.User) || r.Groups != "" && inGroup
	if !who || r.Accounts != "" && !listed(r.Accounts, s.Account) {
		return pb.NewProblem(pb.CodeResvAccess, "reservation %s is not for user %s", s.Reservation, s.User)
	}
	return nil
}

// listed reports whether a comma-separated list admits a name: it names it, or only excludes others ("-name").
func listed(list, name string) bool {
	excludes := false
	for _, s := range strings.Split(list, ",") {
		if s != "" && s == name {
			return true
		}
		if strings.HasPrefix(s, "-") {
			if s[1:] == name {
				return false
			}
			excludes = true
		}
	}
	return excludes
}

// defaults sets what the user left open: name, tasks per CPU, memory (partition before cluster; without any default and with memory
// counted, a job gets the whole memory of its nodes, as in slurm.conf(5)).
func defaults(s *state.Settings, p *pb.PartitionRecord, spec *pb.JobSpec) {
	spec.MailUser = cmp.Or(spec.MailUser, MailUser(s, spec))
	if spec.MemPerNodeMib|spec.MemPerCpuMib|spec.MemPerGpuMib != 0 || spec.MemAll || !s.CountMemory {
		return
	}
	switch {
	case p.DefMemPerCpuMib != 0:
		spec.MemPerCpuMib = p.DefMemPerCpuMib
	case p.DefMemPerNodeMib != 0:
		spec.MemPerNodeMib = p.DefMemPerNodeMib
	case s.DefMemPerCPUMiB != 0:
		spec.MemPerCpuMib = s.DefMemPerCPUMiB
	case s.DefMemPerNodeMiB != 0:
		spec.MemPerNodeMib = s.DefMemPerNodeMiB
	default:
		spec.MemAll = true
	}
}

// MailUser returns the default recipient of mail about a job, if MailDomain gives an address; "": its user.
func MailUser(s *state.Settings, spec *pb.JobSpec) string {
	if s.MailDomain == "" || spec.User == "" {
		return ""
	}
	return spec.User + "@" + s.MailDomain
}

// Limit returns the time limit in a partition, in seconds: the requested one, DefaultTime, or MaxTime.
func Limit(p *pb.PartitionRecord, spec *pb.JobSpec) uint32 {
	switch {
	case spec.TimeLimitS != 0:
		return spec.TimeLimitS
	case p.DefaultTimeS != 0:
		return p.DefaultTimeS
	}
	return p.MaxTimeS
}

// Size sets the totals of a record's request, which are shown while the job waits.
func Size(v *state.View, j *pb.JobRecord) {
	nodes, _ := Feasible(v, j.Spec, true)
	c := sizing.Count(convert.Request(j.Spec, v.Users()))
	size(v.Settings, j, &c, nodes)
}

// size stores the least totals of a request, and the number of nodes that it would start on if all were idle, when that is known.
func size(st *state.Settings, j *pb.JobRecord, c *sizing.Counts, nodes int) {
	j.NumNodes, j.NumCpus, j.NumTasks = clamp32(c.Nodes), clamp32(c.CPUs), clamp32(c.Tasks)
	var list []tres.Gres
	for _, g := range c.Gres {
		list = append(list, tres.Gres{Name: g.Name, Type: g.Type, Count: uint64(g.Count)})
	}
	j.ReqTres = TRES(j.NumCpus, uint64(c.MemMiB), j.NumNodes) + GresTRES(st, list)
	if j.Spec.MaxNodes == 0 { // a range is shown as requested
		j.NumNodes = max(j.NumNodes, uint32(nodes))
	}
}

func clamp32(n int64) uint32 { return uint32(min(n, math.MaxUint32)) }

// StepTRES formats the resources of a step as Slurm does.
func StepTRES(cpus uint32, memMiB uint64, nodes uint32) string {
	if memMiB == 0 {
		return fmt.Sprintf("cpu=%d,node=%d", cpus, nodes)
	}
	return fmt.Sprintf("cpu=%d,mem=%s,node=%d", cpus, tres.FormatMiB(memMiB), nodes)
}

// TRES formats a set of resources as Slurm does.
func TRES(cpus uint32, memMiB uint64, nodes uint32) string {
	if memMiB == 0 {
		return fmt.Sprintf("cpu=%d,node=%d,billing=%d", cpus, nodes, cpus)
	}
	return fmt.Sprintf("cpu=%d,mem=%s,node=%d,billing=%d", cpus, tres.FormatMiB(memMiB), nodes, cpus)
}

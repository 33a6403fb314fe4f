// Package feasible decides whether any set of nodes could ever hold a request, if all were up and idle, and if not, says what was requested
// and what the cluster has. It places the request on an idle cluster as the scheduler does. Admission asks it, and so does the writer when
// a submission was admitted on an older state.
//
// Facts about nodes and partitions are kept with the state's layout (state.View.Derived), and answers by request, so that asking about one
// more job of a known kind costs microseconds. Pure.
package feasible

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-hpc/sluice/ctld/convert"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/placement"
	"github.com/sluice-hpc/sluice/sched/record"
	"github.com/sluice-hpc/sluice/sched/sizing"
)

// Answer is the verdict on a request.
type Answer struct {
	Nodes int    // number of nodes that the job would start on in an idle cluster; 0: it can never start
	Why   string // why it cannot: the request, and the largest node
	// Outgrown: the only problem is that a partition has too few nodes or CPUs. It may grow, so Slurm accepts such a job unless
	// EnforcePartLimits forbids it.
	Outgrown bool
}

// facts holds what is known of one layout.
type facts struct {
	mu       sync.Mutex
	admitter *placement.Admitter
	answers  map[string]Answer
	names    Names
}

// Names are the features (active or not) and generic resources of nodes: sorted, each once.
type Names struct{ Features, Gres []string }

// NamesOf returns the names of a view. They must not be changed.
func NamesOf(v *state.View) Names { return factsOf(v).names }

// maxAnswers bounds the answers that are kept.
const maxAnswers = 8192

// Of answers for a request that may start in any of the partitions.
func Of(v *state.View, s *pb.JobSpec, partitions []string) Answer {
	req := convert.Request(s, v.Users())
	key := req.Key() + "\x00" + strings.Join(partitions, ",")
	g := factsOf(v)
	g.mu.Lock()
	defer g.mu.Unlock()
	if known, ok := g.answers[key]; ok {
		return known
	}
	job := &record.Job{Request: req, Partitions: partitions}
	var out Answer
	if out.Nodes, out.Why = g.admitter.Admit(job); out.Nodes == 0 {
		out.Outgrown = g.admitter.Outgrown(job)
	}
	if len(g.answers) >= maxAnswers {
		clear(g.answers)
	}
	g.answers[key] = out
	return out
}

// Memory describes the memory per node that a request needs beyond a partition's limit; "" when it does not.
func Memory(v *state.View, s *pb.JobSpec, partition string) string {
	if p := v.Partition(partition); p == nil || p.MaxMemPerNodeMib == 0 && v.Settings.MaxMemPerNodeMiB == 0 {
		return ""
	}
	g := factsOf(v)
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.admitter.Memory(&record.Job{Request: convert.Request(s, v.Users())}, partition)
}

func factsOf(v *state.View) *facts { return v.Derived(newFacts).(*facts) }

// newFacts examines a layout: every node as if it were up and withheld nothing.
func newFacts(v *state.View) any {
	var in record.Snapshot
	features, gres := map[string]bool{}, map[string]bool{}
	for _, n := range v.Nodes() {
		in.Nodes = append(in.Nodes, idleNode(n, features, gres))
	}
	for _, p := range v.Partitions() {
		in.Partitions = append(in.Partitions, convert.Partition(v, p))
	}
	for _, r := range v.Reservations() {
		in.Reservations = append(in.Reservations, convert.Reservation(v, r))
	}
	slices.SortFunc(in.Nodes, func(a, b *record.Node) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(in.Partitions, func(a, b *record.Partition) int { return strings.Compare(a.Name, b.Name) })
	set := v.Settings
	params := record.Params{WholeNodes: set.WholeNodes, WholeCores: set.WholeCores, NoMemory: !set.CountMemory}
	return &facts{admitter: placement.NewAdmitter(&params, &in), answers: map[string]Answer{}, names: namesOf(features, gres)}
}

// idleNode returns a node as if it were up and withheld nothing. It adds the names of its features and generic resources.
func idleNode(n *state.Node, features, gres map[string]bool) *record.Node {
	for _, name := range strings.Split(n.Features+","+n.ActiveFeatures, ",") {
		features[name] = true
	}
	if n.Inv != nil {
		for i := range n.Inv.Kinds {
			gres[n.Inv.Kinds[i].Name] = true
		}
	}
	s := convert.Node(n, true)
	s.AwayUntil = 0
	if s.State != record.NodeFuture {
		s.State, s.Reason = record.NodeUsable, ""
	}
	return s
}

func namesOf(features, gres map[string]bool) Names {
	delete(features, "")
	return Names{slices.Sorted(maps.Keys(features)), slices.Sorted(maps.Keys(gres))}
}

// lackingCPUs is Slurm's message for more CPUs of one node than any node has.
const lackingCPUs = "CPU count per node can not be satisfied"

// Lacking returns Slurm's first message when no node of the partitions has enough of one resource for the request's part on a node; "" when
// it is not a single resource.
func Lacking(v *state.View, s *pb.JobSpec, partitions []string) string {
	var cpus, sockets, cores, threads uint32
	var mem, tmp uint64
	for _, part := range partitions {
		for _, name := range v.PartitionNodes(part) {
			n := v.Node(name)
			cpus, mem, tmp = max(cpus, n.Cpus), max(mem, n.RealMemoryMib), max(tmp, n.TmpDiskMib)
			sockets, cores, threads = max(sockets, n.Sockets), max(cores, n.Cores), max(threads, n.Threads)
		}
	}
	switch {
	case sizing.NodeCPUs(convert.Anywhere(s, v.Users())) > int64(cpus):
		return lackingCPUs
	case max(s.MemPerNodeMib, s.MemPerCpuMib) > mem:
		return "Memory specification can not be satisfied"
	case s.TmpDiskMib > tmp:
		return "Temporary disk specification can not be satisfied"
	case s.SocketsPerNode > sockets, s.CoresPerSocket > cores, s.ThreadsPerCore > threads:
		return "Socket, core and/or thread specification can not be satisfied"
	}
	return ""
}

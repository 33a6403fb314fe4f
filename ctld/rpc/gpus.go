package rpc

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/ctld/live"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Gpus streams the GPUs that match, with their activity and owners.
func (s *Service) Gpus(ctx context.Context, r *pb.GpusRequest, out pb.ControllerAPI_GpusServer) error {
	return s.gpus(ctx, r, s.Writer.View(), s.redacted(ctx, out.Send))
}

func (s *Service) gpus(ctx context.Context, r *pb.GpusRequest, v *state.View, send func(*pb.GpusReply) error) error {
	var want map[string]bool
	if len(r.Nodes) > 0 {
		var p *pb.Problem
		if want, p = nodeSet(r.Nodes); p != nil {
			return problem(p)
		}
		for name := range want {
			if v.Node(name) == nil {
				return problem(pb.NewProblem(pb.CodeInvalidNodeName, "there is no node %s", name))
			}
		}
	}
	for _, name := range r.Partitions {
		if v.Partition(name) == nil {
			return problem(pb.NewProblem(pb.CodeInvalidPartition, "there is no partition %q", name))
		}
	}
	reply, sent := &pb.GpusReply{Seq: v.Seq, NowNs: v.NowNS}, false
	var without []*state.Node
	for n := range attentive(ctx, slices.Values(v.Nodes())) {
		if want != nil && !want[n.Name] || len(r.Partitions) > 0 && !slices.ContainsFunc(n.Partitions,
			func(p string) bool { return slices.Contains(r.Partitions, p) }) {
			continue
		}
		gpus := s.gpusOf(v, n)
		if reply.Gpus = append(reply.Gpus, gpus...); len(gpus) == 0 {
			without = append(without, n)
		}
		if len(reply.Gpus) >= pageRecords {
			if err := send(reply); err != nil {
				return err
			}
			sent, reply.Gpus = true, nil
		}
	}
	if err := gone(ctx); err != nil {
		return err
	}
	if len(reply.Gpus) > 0 || !sent {
		if len(reply.Gpus) == 0 {
			reply.None = noGPUs(without)
		}
		return send(reply)
	}
	return nil
}

// noGPUs lists the reasons why nodes have no GPU, as their daemons have reported them: nodes with the same reason together, in the order of
// the first of each.
func noGPUs(nodes []*state.Node) (out []*pb.NoGpus) {
	by := map[string]*pb.NoGpus{}
	for _, n := range nodes {
		why := whyNoGPU(n)
		if by[why] == nil {
			by[why] = &pb.NoGpus{Why: why}
			out = append(out, by[why])
		}
		by[why].Nodes = append(by[why].Nodes, n.Name)
	}
	return out
}

func whyNoGPU(n *state.Node) string {
	r := n.Reported
	var why string
	switch {
	case r == nil:
		return "its node daemon has not registered yet, and slurm.conf has no Gres=gpu for it"
	case r.Unread:
		why = "its node daemon has not read gres.conf yet"
	case r.NoGpus != "":
		why = r.NoGpus
	case r.Driver != "":
		why = fmt.Sprintf("NVIDIA's driver %s shows no GPU that gres.conf gives to jobs", r.Driver)
	default:
		why = "its node daemon, of version " + n.Version + ", does not say why"
	}
	if n.Inv != nil && len(n.Inv.Differ) > 0 {
		why += "; " + strings.Join(n.Inv.Differ, "; ")
	}
	if n.State != pb.NodeState_NODE_IDLE || !n.LinkUp {
		why += "; it is not connected now; this was its last report"
	}
	return why
}

// gpusOf returns the GPUs of one node. GPUs that are only counted show their owners and nothing else.
func (s *Service) gpusOf(v *state.View, n *state.Node) []*pb.GpuRecord {
	if n.Inv == nil {
		return nil
	}
	owners := map[uint32][]*pb.GpuOwner{}
	for _, id := range n.Jobs {
		if j := v.Jobs.Get(id); j != nil {
			ownersOf(n, j, owners)
		}
	}
	var out []*pb.GpuRecord
	for i := range n.Inv.Kinds {
		k := &n.Inv.Kinds[i]
		if k.Name != "gpu" || k.Shared {
			continue
		}
		for _, d := range k.Devices {
			g := s.gpu(v, n, d, owners[d.Index])
			if strings.HasPrefix(d.MigMode, "pending") {
				g.Diagnosis = "MIG mode " + d.MigMode + ": the GPU must be reset first"
			}
			out = append(out, g)
			for _, part := range n.Inv.Parts(d) {
				out = append(out, s.gpu(v, n, part, ownersOfPart(g.Owners, part)))
			}
		}
	}
	slices.SortStableFunc(out, func(a, b *pb.GpuRecord) int { return int(a.Device.Index) - int(b.Device.Index) })
	return out
}

// ownersOfPart returns those of a GPU's owners that have an instance of it: by its place, or all of the GPU, which may be one instance.
func ownersOfPart(owners []*pb.GpuOwner, part *pb.Device) []*pb.GpuOwner {
	return slices.DeleteFunc(slices.Clone(owners), func(o *pb.GpuOwner) bool { return o.Type != "" && o.Start != part.MigStart })
}

// gpu returns the displayed record of one GPU or instance.
func (s *Service) gpu(v *state.View, n *state.Node, d *pb.Device, owners []*pb.GpuOwner) *pb.GpuRecord {
	g := &pb.GpuRecord{Node: n.Name, Owners: owners, Device: &pb.Device{Name: d.Name, Type: d.Type, Index: d.Index, Id: d.Id,
		Minor: d.Minor, Pci: d.Pci, Model: d.Model,
		MemoryMib: d.MemoryMib, Numa: d.Numa, Parent: d.Parent, MigStart: d.MigStart, MigMode: d.MigMode, Ecc: d.Ecc, Fault: d.Fault,
		FaultNs: d.FaultNs, Foreign: d.Foreign,
		Shares: d.Shares, SharedAs: d.SharedAs}}
	if s.Samples != nil && d.Id != "" {
		if g.Sample, g.IdleSinceNs = s.Samples.Get(n.Name, d.Id, v.Steady(v.NowNS)-live.StaleNS); g.IdleSinceNs != 0 {
			g.IdleSinceNs = v.Wall(g.IdleSinceNs)
		}
	}
	g.State, g.Why = gpuState(n, d, owners)
	return g
}

func ownersOf(n *state.Node, j *pb.JobRecord, owners map[uint32][]*pb.GpuOwner) {
	for _, a := range j.Alloc {
		if a.Node != n.Name || a.Ended {
			continue
		}
		for _, d := range a.Devices {
			have := n.Inv.Current(d)
			if have == nil || have.Name != "gpu" || d.Count > 0 {
				continue
			}
			o := &pb.GpuOwner{JobId: j.Id, Id: fmt.Sprint(j.Id), User: j.Spec.User, Uid: j.Spec.Uid, Share: d.Share, Name: j.Spec.Name,
				StartNs: j.StartNs}
			if j.IsArrayTask {
				o.Id = fmt.Sprintf("%d_%d", j.ArrayJobId, j.ArrayTaskId)
			}
			if d.Parent != "" {
				o.Type, o.Start = d.Type, d.MigStart
			}
			owners[have.Index] = append(owners[have.Index], o)
		}
	}
}

// gpuState returns a word for the state of a GPU, and a reason where that is not obvious.
func gpuState(n *state.Node, d *pb.Device, owners []*pb.GpuOwner) (word, why string) {
	switch {
	case d.Fault != "":
		return "fault", d.Fault
	case d.Foreign != "" && len(owners) == 0:
		return "foreign", d.Foreign
	case n.State != pb.NodeState_NODE_IDLE || !n.LinkUp:
		return "down", n.Reason
	case len(owners) == 0 && !n.Up():
		return "drain", n.Reason
	case len(owners) == 0:
		return "idle", ""
	}
	shares := uint64(0)
	for _, o := range owners {
		if o.Share == 0 && (o.Type == "" || d.Parent != "") {
			return "alloc", ""
		}
		shares += uint64(o.Share)
	}
	if d.Shares > 0 && shares >= d.Shares {
		return "alloc", ""
	}
	return "mixed", ""
}

// reasonDetail is the number of JobRecord's field of that name.
const reasonDetail = 6

// withheld adds to displayed waiting jobs which partitions and nodes are gone, which devices are withheld, and why. Jobs with equal
// requests get the same text.
func (s *Service) withheld(v *state.View, in *pb.Fields) func(*pb.JobRecord) *pb.JobRecord {
	said := map[[7]string]string{}
	return func(j *pb.JobRecord) *pb.JobRecord {
		k := j.Spec
		if s.Withheld == nil || !in.Job.Has(reasonDetail) || j.State != pb.JobState_JOB_PENDING {
			return j
		}
		if k.TresPerNode+k.TresPerJob+k.TresPerTask+k.TresPerSocket+k.ReqNodes == "" &&
			(k.Partition == "" || v.Partition(k.Partition) != nil) {
			return j
		}
		key := [7]string{k.Partition, k.TresPerNode, k.TresPerJob, k.TresPerTask, k.TresPerSocket, k.ReqNodes, k.ExcNodes}
		text, known := said[key]
		if !known {
			text = s.Withheld(v, j)
			said[key] = text
		}
		if text == "" {
			return j
		}
		c := state.CloneJob(j)
		if c.ReasonDetail != "" {
			text = c.ReasonDetail + "; " + text
		}
		c.ReasonDetail = text
		return c
	}
}

package feasible

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/ctld/convert"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/record"
)

// maxNotes bounds the notes on devices.
const maxNotes = 20

// DeviceNotes list the requested devices that are withheld on the nodes that the job could use, with the reasons; with differ also
// differences between the configured and the existing devices there. Nodes with the same note share a line.
func DeviceNotes(v *state.View, s *pb.JobSpec, differ bool) []string {
	want := convert.GresRequests(s)
	if len(want) == 0 {
		return nil
	}
	var texts []string
	nodes := map[string][]string{}
	say := func(node, text string) {
		if len(nodes[text]) == 0 {
			texts = append(texts, text)
		}
		if !slices.Contains(nodes[text], node) {
			nodes[text] = append(nodes[text], node)
		}
	}
	named, _ := hostlist.Expand(s.ReqNodes) // cannot fail: admit has read both
	not, _ := hostlist.Expand(s.ExcNodes)
	for _, part := range strings.Split(convert.PartitionList(v, s), ",") {
		for _, name := range v.PartitionNodes(part) {
			n := v.Node(name)
			if n == nil || n.Inv == nil || slices.Contains(not, name) || len(named) > 0 && !slices.Contains(named, name) {
				continue
			}
			for i := range n.Inv.Kinds {
				for _, d := range n.Inv.Kinds[i].Devices {
					if why := state.Withheld(d); why != "" && slices.ContainsFunc(want,
						func(g record.GresRequest) bool { return means(&g, d) }) {
						say(name, fmt.Sprintf("%s is not allocated to jobs: %s", state.DeviceName(d), why))
					}
					if why := state.Uncut(d); why != "" && n.GresConf.DynamicMIG &&
						slices.ContainsFunc(want, func(g record.GresRequest) bool { return state.Profile(d, g.Type) != nil }) {
						say(name, state.DeviceName(d)+": "+why)
					}
				}
			}
			for _, text := range n.Inv.Differ {
				if differ {
					say(name, text)
				}
			}
		}
	}
	var out []string
	for _, text := range texts[:min(len(texts), maxNotes)] {
		out = append(out, hostlist.Fold(nodes[text])+": "+text)
	}
	return out
}

// means reports whether a request may be for a device, or a part of it.
func means(g *record.GresRequest, d *pb.Device) bool {
	name := g.Name
	if name == "shard" || name == "mps" {
		name = "gpu"
	}
	return name == d.Name && (g.Type == "" || g.Type == d.Type || state.Profile(d, g.Type) != nil)
}

// PartitionNotes list which of a job's partitions, and of the nodes that it names, no longer exist.
func PartitionNotes(v *state.View, j *pb.JobRecord) (out []string) {
	if names, _ := hostlist.Expand(j.Spec.ReqNodes); len(names) > 0 {
		names = slices.DeleteFunc(names, func(name string) bool { return v.Node(name) != nil })
		if len(names) > 0 {
			out = append(out, fmt.Sprintf("node %s, which the job requests (-w), is no longer in slurm.conf; "+
				"scontrol update JobId=… ReqNodeList= lets it run elsewhere", hostlist.Fold(names)))
		}
	}
	for _, name := range strings.Split(convert.PartitionList(v, j.Spec), ",") {
		if name != "" && v.Partition(name) == nil {
			out = append(out, "partition "+name+" no longer exists; scontrol update JobId=… Partition= moves the job to another")
		}
	}
	return out
}

// Withheld returns PartitionNotes and DeviceNotes on one line, for scontrol show job. Empty for a job that does not wait.
func Withheld(v *state.View, j *pb.JobRecord) string {
	if !state.Pending(j) {
		return ""
	}
	return strings.Join(append(PartitionNotes(v, j), DeviceNotes(v, j.Spec, false)...), "; ")
}

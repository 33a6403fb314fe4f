package planner

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched"
)

// maxNotes bounds what is said of devices.
const maxNotes = 20

// deviceNotes say what of the devices that a job asks for is not given out on the nodes it could use, and why; with differ also where
// what is configured there is not what there is.
func deviceNotes(v *state.View, j *pb.JobRecord, differ bool) []string {
	want := gresRequests(j.Spec)
	if len(want) == 0 {
		return nil
	}
	var out []string
	say := func(format string, args ...any) {
		if line := fmt.Sprintf(format, args...); len(out) < maxNotes && !slices.Contains(out, line) {
			out = append(out, line)
		}
	}
	named, _ := hostlist.Expand(j.Spec.ReqNodes) // admit has read both
	not, _ := hostlist.Expand(j.Spec.ExcNodes)
	for _, part := range strings.Split(admit.PartitionList(v, j.Spec), ",") {
		for _, name := range v.PartitionNodes(part) {
			n := v.Node(name)
			if n == nil || n.Inv == nil || slices.Contains(not, name) || len(named) > 0 && !slices.Contains(named, name) {
				continue
			}
			for i := range n.Inv.Kinds {
				for _, d := range n.Inv.Kinds[i].Devices {
					if why := state.Withheld(d); why != "" && slices.ContainsFunc(want, func(g sched.GresRequest) bool { return means(&g, d) }) {
						say("%s: %s is not given out: %s", name, state.DeviceName(d), why)
					}
					if why := state.Uncut(d); why != "" && n.GresConf.DynamicMIG && slices.ContainsFunc(want, func(g sched.GresRequest) bool { return state.Profile(d, g.Type) != nil }) {
						say("%s: %s: %s", name, state.DeviceName(d), why)
					}
				}
			}
			for _, text := range n.Inv.Differ {
				if differ {
					say("%s: %s", name, text)
				}
			}
		}
	}
	return out
}

// means: a request may be for a device, or a part of it.
func means(g *sched.GresRequest, d *pb.Device) bool {
	name := g.Name
	if name == "shard" || name == "mps" {
		name = "gpu"
	}
	return name == d.Name && (g.Type == "" || g.Type == d.Type || state.Profile(d, g.Type) != nil)
}

// partitionNotes say which of a job's partitions are not there any more.
func partitionNotes(v *state.View, j *pb.JobRecord) (out []string) {
	for _, name := range strings.Split(admit.PartitionList(v, j.Spec), ",") {
		if name != "" && v.Partition(name) == nil {
			out = append(out, "partition "+name+" is not there any more; scontrol update JobId=… Partition= moves the job to another")
		}
	}
	return out
}

// Withheld is what partitionNotes and deviceNotes say, on one line: for scontrol show job. Empty for a job that does not wait.
func Withheld(v *state.View, j *pb.JobRecord) string {
	if !state.Pending(j) {
		return ""
	}
	return strings.Join(append(partitionNotes(v, j), deviceNotes(v, j, false)...), "; ")
}

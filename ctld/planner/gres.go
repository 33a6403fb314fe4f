package planner

import (
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/conf/tres"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched"
)

// gresRequests reads what a job asks for of generic resources (sbatch(1): --gres, --gpus and their relatives).
func gresRequests(s *pb.JobSpec) []sched.GresRequest {
	var out []sched.GresRequest
	for _, part := range []struct {
		text string
		per  sched.GresPer
	}{{s.TresPerNode, sched.PerNode}, {s.TresPerJob, sched.PerJob}, {s.TresPerSocket, sched.PerSocket}, {s.TresPerTask, sched.PerTask}} {
		for _, g := range readGres(part.text) {
			out = append(out, sched.GresRequest{Name: g.Name, Type: g.Type, Count: int64(g.Count), Per: part.per})
		}
	}
	return out
}

// readGres reads "gres/gpu:a100:2,gres/shard:4", with "gres:" as older versions write it; admit has checked the text.
func readGres(text string) []tres.Gres {
	if text == "" {
		return nil
	}
	var bare []string
	for _, part := range strings.Split(text, ",") {
		bare = append(bare, strings.TrimPrefix(strings.TrimPrefix(part, "gres/"), "gres:"))
	}
	list, _ := tres.ParseGres(strings.Join(bare, ","))
	return list
}

// nodeGres are a node's generic resources: each of a count is a device of its own. Resources that are not consumed are left out:
// any job may use them.
func nodeGres(n *state.Node) []sched.Gres {
	list, _ := tres.ParseNodeGres(n.Gres)
	var out []sched.Gres
	next := map[string]int{} // devices of one name are numbered over all its types
	for _, g := range list {
		if g.NoConsume {
			continue
		}
		s := sched.Gres{Name: g.Name, Type: g.Type, Count: int64(g.Count)}
		if g.Name == "gpu" {
			for range g.Count {
				s.Devices = append(s.Devices, sched.Device{Index: next[g.Name]})
				next[g.Name]++
			}
		}
		out = append(out, s)
	}
	return out
}

// gresAllocs turns the devices of a record into the scheduler's terms.
func gresAllocs(a *pb.NodeAlloc) []sched.GresAlloc {
	var out []sched.GresAlloc
	for _, d := range a.Devices {
		i := len(out) - 1
		if i < 0 || out[i].Name != d.Name || out[i].Type != d.Type {
			out = append(out, sched.GresAlloc{Name: d.Name, Type: d.Type})
			i++
		}
		if d.Count > 0 {
			out[i].Count += int64(d.Count)
			continue
		}
		out[i].Count++
		out[i].Devices = append(out[i].Devices, int(d.Index))
		out[i].Shares = int64(d.Share)
	}
	return out
}

// devices turns an allocation into records, and the text that scontrol shows of it: "gpu:a100:2(IDX:0-1)".
func devices(gres []sched.GresAlloc) (list []*pb.GresDevice, text string) {
	var parts []string
	for _, g := range gres {
		t := tres.Gres{Name: g.Name, Type: g.Type, Count: uint64(max(g.Count, int64(len(g.Devices))))}.String()
		if len(g.Devices) == 0 {
			list = append(list, &pb.GresDevice{Name: g.Name, Type: g.Type, Count: uint32(g.Count)})
			parts = append(parts, t)
			continue
		}
		var index state.Cores
		for _, d := range g.Devices {
			list = append(list, &pb.GresDevice{Name: g.Name, Type: g.Type, Index: uint32(d), Share: uint32(g.Shares)})
			set, _ := state.ParseCores(strconv.Itoa(d))
			index = index.With(set)
		}
		parts = append(parts, t+"(IDX:"+index.String()+")")
	}
	return list, strings.Join(parts, ",")
}

// gresTRES is the part of AllocTRES for generic resources: ",gres/gpu=2,gres/gpu:a100=2".
func gresTRES(total map[string]int64, order []string) string {
	var b strings.Builder
	for _, name := range order {
		b.WriteString(",gres/")
		b.WriteString(name)
		b.WriteByte('=')
		b.WriteString(strconv.FormatInt(total[name], 10))
	}
	return b.String()
}

// licenses reads "name:count,name" as sbatch(1) has it.
func licenses(text string) []sched.License {
	var out []sched.License
	for _, part := range strings.Split(text, ",") {
		name, count, counted := strings.Cut(part, ":")
		n, err := strconv.ParseInt(count, 10, 64)
		if !counted || err != nil {
			n = 1
		}
		if name != "" {
			out = append(out, sched.License{Name: name, Count: n})
		}
	}
	return out
}

// nodeCounts reads "2,4,8" and "4-16:4".
func nodeCounts(text string) []sched.NodeCount {
	var out []sched.NodeCount
	for _, part := range strings.Split(text, ",") {
		span, step, _ := strings.Cut(part, ":")
		lo, hi, isRange := strings.Cut(span, "-")
		a, err := strconv.Atoi(lo)
		if err != nil {
			continue
		}
		c := sched.NodeCount{Min: a, Max: a, Step: 1}
		if b, err := strconv.Atoi(hi); isRange && err == nil {
			c.Max = b
		}
		if n, err := strconv.Atoi(step); err == nil {
			c.Step = n
		}
		out = append(out, c)
	}
	return out
}

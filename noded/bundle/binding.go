package bundle

import (
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/noded/hw"
	"github.com/sluice-hpc/sluice/noded/isolate"
	"github.com/sluice-hpc/sluice/noded/taskenv"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// bindings are the CPUs and GPUs of each task of a step on this node (srun(1), --cpu-bind and --gpu-bind). Tasks are bound on
// request and with task/affinity; the step's cgroup restricts them to the step's CPUs anyway.
type bindings struct {
	cpus []string
	env  [][]string
}

func (b bindings) task(t *pb.StepTask, i int) {
	if i < len(b.cpus) {
		t.Cpus = b.cpus[i]
	}
	if i < len(b.env) {
		t.Env = append(t.Env, b.env[i]...)
	}
}

// bindings computes the bindings of the tasks on this node. cpuset is the CPUs of the step's cgroup; empty: those of its
// allocation, or all.
func (b *Builder) bindings(l *pb.LaunchSpec, here *pb.StepNode, s *pb.NodeSettings, cpuset string) (out bindings) {
	spec, n := l.GetStep().GetSpec(), len(here.GetTasks())
	if cpuset == "" {
		ids := here.GetCpuIds()
		for _, a := range l.GetAlloc() {
			if a.Node == l.Node && ids == "" {
				ids = a.CpuIds
			}
		}
		cpuset = b.cpuset(l, &pb.NodeAlloc{CpuIds: ids}, s)
	}
	kind, list, verbose := cpuBind(spec.GetCpuBind())
	cpus, each := usable(b.Topology, cpuset), int(max(1, spec.GetCpusPerTask()))
	if kind == "" && s.GetBindTasks() && cpuset != "" {
		kind = matching(cpus, n*each)
	}
	out.cpus = bindCPUs(cpus, kind, list, n, each, spec.GetDistribution())
	out.env = make([][]string, n)
	for i := range out.env {
		out.env[i] = cpuBindEnv(kind, list, verbose, out.cpus)
	}
	gpus := b.Environ(s).Gres
	positions := bindGPUs(spec, len(gpusOfStep(here)), n)
	if closest(spec) {
		positions = b.closestGPUs(l, here, s, out.cpus)
	}
	for i, positions := range positions {
		out.env[i] = append(out.env[i], taskenv.TaskGPUs(here, gpus, positions)...)
	}
	return out
}

// matching returns the default binding: to threads, cores or sockets if tasks times their CPUs match the number of these, else to
// all CPUs of the step (srun(1), --cpu-bind, "auto binding").
func matching(t hw.Topology, cpus int) string {
	cores, sockets := map[int]bool{}, map[int]bool{}
	for _, c := range t {
		cores[c.Core], sockets[c.Socket] = true, true
	}
	switch cpus {
	case len(cores):
		return "cores"
	case len(t):
		return "threads"
	case len(sockets):
		return "sockets"
	}
	return wholeStep
}

// wholeStep binds every task to all CPUs of the step.
const wholeStep = "step"

// closest reports whether each task sees only the GPUs near its CPUs.
func closest(spec *pb.StepSpec) bool {
	kind, _ := gpuBind(spec.GetTresBind())
	return kind == "closest"
}

// closestGPUs returns the positions of the GPUs near each task's CPUs: all of them for a task without CPUs of its own, or if the
// affinity is unknown.
func (b *Builder) closestGPUs(l *pb.LaunchSpec, here *pb.StepNode, s *pb.NodeSettings, cpus []string) [][]int {
	out := make([][]int, len(cpus))
	for i := range out {
		own, err := hw.ParseList(cpus[i])
		if err != nil || len(own) == 0 {
			continue
		}
		for at, gpu := range gpusOfStep(here) {
			held := isolate.Held(b.Environ(s).Gres.Devices, []*pb.GresDevice{gpu})
			if len(held) == 0 || held[0].Cores == "" {
				return nil
			}
			near, err := hw.ParseList(b.cpuset(l, &pb.NodeAlloc{CpuIds: held[0].Cores}, s))
			if err == nil && slices.ContainsFunc(near, func(cpu int) bool { return slices.Contains(own, cpu) }) {
				out[i] = append(out[i], at)
			}
		}
		if len(out[i]) == 0 {
			return nil
		}
	}
	return out
}

// cpuBind parses --cpu-bind: "verbose,map_cpu:0,1".
func cpuBind(as string) (kind string, list []string, verbose string) {
	for part := range strings.SplitSeq(strings.ToLower(as), ",") {
		switch name, first, hasList := strings.Cut(part, ":"); {
		case part == "v" || part == "verbose":
			verbose = "verbose"
		case part == "q" || part == "quiet":
			verbose = "quiet"
		case hasList:
			kind, list = name, []string{first}
		case list != nil:
			list = append(list, part)
		case part != "":
			kind = part
		}
	}
	switch kind {
	case "no":
		kind = "none"
	case "socket", "core", "thread", "ldom":
		kind += "s"
	}
	return kind, repeated(list), verbose
}

// repeated expands "0x3*2".
func repeated(list []string) (out []string) {
	for _, e := range list {
		value, times, _ := strings.Cut(e, "*")
		n, err := strconv.Atoi(times)
		if err != nil || n < 1 || n > maxRepeated {
			n = 1
		}
		for range n {
			out = append(out, value)
		}
	}
	return out
}

const maxRepeated = 4096

// usable returns the processors of a list, all for an empty one.
func usable(t hw.Topology, cpuset string) hw.Topology {
	ids, err := hw.ParseList(cpuset)
	if err != nil || len(ids) == 0 {
		return t
	}
	var out hw.Topology
	for _, c := range t {
		if slices.Contains(ids, c.ID) {
			out = append(out, c)
		}
	}
	return out
}

// bindCPUs returns the processors of each of n tasks, nil if tasks are not bound.
func bindCPUs(t hw.Topology, kind string, list []string, n, each int, distribution string) []string {
	if len(t) == 0 {
		return nil
	}
	out := make([]string, n)
	switch kind {
	case "threads", "cores", "sockets", "ldoms", "boards":
		return spread(t, kind, n, each, distribution)
	case wholeStep:
		var ids []int
		for _, c := range t {
			ids = append(ids, c.ID)
		}
		for i := range out {
			out[i] = hw.FormatList(ids)
		}
	case "rank", "rank_ldom":
		for i := range out {
			out[i] = strconv.Itoa(t[i%len(t)].ID)
		}
	case "map_cpu", "mask_cpu":
		for i := range out {
			if len(list) > 0 {
				out[i] = within(t, entry(kind, list[i%len(list)]))
			}
		}
	case "map_ldom", "mask_ldom":
		for i := range out {
			if len(list) == 0 {
				continue
			}
			domains := entry(strings.Replace(kind, "ldom", "cpu", 1), list[i%len(list)])
			var ids []int
			for _, c := range t {
				if slices.Contains(domains, c.Socket) {
					ids = append(ids, c.ID)
				}
			}
			out[i] = hw.FormatList(ids)
		}
	default:
		return nil
	}
	return out
}

// entry parses one element of a list: a number, or a mask.
func entry(kind, s string) (ids []int) {
	if !strings.HasPrefix(kind, "mask") {
		if n, err := strconv.ParseUint(s, 0, 16); err == nil {
			ids = append(ids, int(n))
		}
		return ids
	}
	digits := strings.TrimPrefix(s, "0x")
	for i := range digits {
		d, err := strconv.ParseUint(digits[len(digits)-1-i:len(digits)-i], 16, 8)
		if err != nil || i >= maxRepeated {
			return nil
		}
		for bit := range 4 {
			if d>>bit&1 != 0 {
				ids = append(ids, 4*i+bit)
			}
		}
	}
	return ids
}

// within returns those of the ids that the step has.
func within(t hw.Topology, ids []int) string {
	var out []int
	for _, c := range t {
		if slices.Contains(ids, c.ID) {
			out = append(out, c.ID)
		}
	}
	return hw.FormatList(out)
}

// spread gives each task enough threads, and then all of the cores or sockets that contain them. Tasks alternate between sockets
// unless the distribution says block within the node.
func spread(t hw.Topology, kind string, n, each int, distribution string) []string {
	units := slices.Clone(t)
	if kind != "threads" { // cores: represented by their first thread
		seen := map[int]bool{}
		units = slices.DeleteFunc(units, func(c hw.CPU) bool {
			if seen[c.Core] {
				return true
			}
			seen[c.Core] = true
			return false
		})
		each = max(1, (each*len(units)+len(t)-1)/len(t))
	}
	var order []hw.CPU
	for i := range n {
		order = append(order, take(&units, t, each, i, distribution)...)
	}
	if len(order) < n*each { // too many tasks: they share the units in turn
		all := order
		for len(order) < n*each && len(all) > 0 {
			order = append(order, all...)
		}
	}
	out := make([]string, n)
	for i := range out {
		var ids []int
		for _, of := range order[min(i*each, len(order)):min((i+1)*each, len(order))] {
			for _, c := range t {
				if c.ID == of.ID || kind == "cores" && c.Core == of.Core || kind != "cores" && kind != "threads" && c.Socket == of.Socket {
					ids = append(ids, c.ID)
				}
			}
		}
		out[i] = hw.FormatList(ids)
	}
	return out
}

// take removes one task's processors from the remaining ones.
func take(units *hw.Topology, t hw.Topology, each, task int, distribution string) (got []hw.CPU) {
	second := ""
	if parts := strings.Split(distribution, ":"); len(parts) > 1 {
		second = parts[1]
	}
	var sockets []int
	for _, c := range t {
		if !slices.Contains(sockets, c.Socket) {
			sockets = append(sockets, c.Socket)
		}
	}
	for i := range sockets {
		socket := sockets[(task+i)%len(sockets)]
		if second == "block" {
			socket = sockets[i]
		}
		*units = slices.DeleteFunc(*units, func(c hw.CPU) bool {
			if len(got) == each || c.Socket != socket {
				return false
			}
			got = append(got, c)
			return true
		})
	}
	return got
}

// cpuBindEnv returns the variables about the binding, the same for all tasks of a node.
func cpuBindEnv(kind string, list []string, verbose string, cpus []string) []string {
	if kind == "" && verbose == "" {
		return nil
	}
	if verbose == "" {
		verbose = "quiet"
	}
	masks := list
	switch {
	case kind == "none" || kind == "" || strings.HasPrefix(kind, "rank"):
		masks = nil
	case strings.HasPrefix(kind, "mask_"):
		masks = nil
		for _, m := range list {
			masks = append(masks, strings.TrimPrefix(m, "0x"))
		}
	case kind == wholeStep && len(cpus) > 0:
		kind, masks = "mask_cpu", []string{mask(cpus[0])}
	case len(list) == 0 && len(cpus) > 0:
		kind = "mask_cpu"
		for _, c := range cpus {
			masks = append(masks, mask(c))
		}
	}
	of := kind
	if len(masks) > 0 {
		of += ":"
	}
	joined := strings.Join(masks, ",")
	return []string{"SLURM_CPU_BIND=" + strings.TrimSuffix(verbose+","+of+joined, ","), "SLURM_CPU_BIND_LIST=" + joined,
		"SLURM_CPU_BIND_TYPE=" + of, "SLURM_CPU_BIND_VERBOSE=" + verbose}
}

// mask formats a list of processors as Slurm does: 0x3.
func mask(list string) string {
	ids, _ := hw.ParseList(list)
	digits := []byte{'0'}
	for _, id := range ids {
		for len(digits) <= id/4 {
			digits = append(digits, '0')
		}
		v, _ := strconv.ParseUint(string(digits[id/4]), 16, 8)
		digits[id/4] = strings.ToUpper(strconv.FormatUint(v|1<<(id%4), 16))[0]
	}
	slices.Reverse(digits)
	return "0x" + string(digits)
}

// gpusOfStep returns the devices that --gpu-bind concerns.
func gpusOfStep(here *pb.StepNode) (gpus []*pb.GresDevice) {
	for _, d := range here.GetDevices() {
		if d.Name == "gpu" && d.Count == 0 {
			gpus = append(gpus, d)
		}
	}
	return gpus
}

// gpuBind parses --gpu-bind: "gres/gpu:verbose,single:1".
func gpuBind(how string) (kind, rest string) {
	how = strings.TrimPrefix(strings.TrimPrefix(how, "gres/"), "gpu:")
	kind, rest, _ = strings.Cut(strings.TrimPrefix(strings.TrimPrefix(how, "verbose,"), "v,"), ":")
	return kind, rest
}

// bindGPUs returns the positions, among a step's GPUs, of those that each task sees; nil if all see all.
func bindGPUs(spec *pb.StepSpec, gpus, n int) [][]int {
	kind, rest := gpuBind(spec.GetTresBind())
	if kind == "" {
		for part := range strings.SplitSeq(spec.GetTresPerTask(), ",") {
			if of, ok := strings.CutPrefix(part, "gres/gpu"); ok {
				kind, rest = "per_task", of[strings.LastIndex(of, ":")+1:]
			}
		}
	}
	if gpus == 0 {
		return nil
	}
	first, _, _ := strings.Cut(rest, ",")
	count, _ := strconv.Atoi(first)
	count = max(1, count)
	list := repeated(strings.Split(rest, ","))
	out := make([][]int, n)
	for i := range out {
		switch kind {
		case "single":
			out[i] = []int{i / count % gpus}
		case "per_task":
			for j := range min(count, gpus) {
				out[i] = append(out[i], (i*count+j)%gpus)
			}
		case "map_gpu", "map":
			out[i] = append([]int{}, entry("map", list[i%len(list)])...)
		case "mask_gpu", "mask":
			out[i] = append([]int{}, entry("mask", list[i%len(list)])...)
		default:
			return nil
		}
	}
	return out
}

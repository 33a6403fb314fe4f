package joboptions

import (
	"fmt"
	"math"
	"strings"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/conf/tres"
)

// gpuRequest combines all options that request GPUs; 0: not given.
type gpuRequest struct {
	task, socket, node, all uint64 // --gpus-per-task, --gpus-per-socket, --gres and --gpus-per-node, --gpus
	tasks, perGPU, perNode  uint64 // -n, --ntasks-per-gpu, --ntasks-per-node
	lo, hi, sockets         uint64 // -N, --sockets-per-node
}

func (r *Request) gpuRequest() gpuRequest {
	s := r.Spec
	return gpuRequest{task: countGPUs(s.TresPerTask), socket: countGPUs(s.TresPerSocket),
		node: countGPUs(r.gres) + countGPUs(r.gpusPerNode), all: countGPUs(s.TresPerJob),
		tasks: uint64(s.NumTasks), perGPU: uint64(s.NtasksPerTres), perNode: uint64(s.NtasksPerNode), lo: uint64(s.MinNodes),
		hi: uint64(s.MaxNodes), sockets: uint64(s.SocketsPerNode)}
}

// TasksOfGPUs is the number of tasks for perGPU tasks on each requested GPU; 0 if the request does not set the number of GPUs.
func (r *Request) TasksOfGPUs(perGPU uint32) uint32 {
	g := r.gpuRequest()
	total := max(g.all, g.node*max(g.lo, 1))
	if total > math.MaxUint32/uint64(perGPU) {
		return 0
	}
	return uint32(total) * perGPU
}

// parts parses a list in the format that this package writes: "gres/gpu:a100:2,gres/shard:1".
func parts(list string) []tres.Gres {
	if list == "" {
		return nil
	}
	gres, _ := tres.ParseGres(strings.ReplaceAll(list, tresPrefix, ""))
	return gres
}

// countGPUs sums up the GPUs of a list.
func countGPUs(list string) (n uint64) {
	for _, g := range parts(list) {
		if g.Name == "gpu" {
			n += g.Count
		}
	}
	return n
}

// checkGPUs rejects GPU options that exclude or contradict each other (sbatch(1), --gpus and related options).
func (r *Request) checkGPUs() error {
	if r.InJob {
		return nil // the controller compares them with the job's allocation
	}
	for _, check := range [...]func() error{r.checkGPUOptions, r.checkGPUTypes, r.gpuRequest().checkNodes, r.gpuRequest().checkTasks,
		r.checkPerGPU} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// badGPUs returns Slurm's two-line error.
func badGPUs(hint, format string, args ...any) error {
	return &opt.ValueError{Lines: []string{fmt.Sprintf(format, args...), msg.CodeInvalidGres.Phrase()}, Exit: 1,
		Hint: msg.Singular(hint)}
}

// checkGPUOptions rejects options that exclude each other whatever their values.
func (r *Request) checkGPUOptions() error {
	s := r.Spec
	switch {
	case s.NtasksPerTres != 0 && r.Given("gpus-per-task"):
		return exclusive("--gpus-per-task is mutually exclusive with --ntasks-per-gpu and SLURM_NTASKS_PER_GPU")
	case s.NtasksPerTres != 0 && s.TresPerSocket != "":
		return exclusive("--gpus-per-socket is mutually exclusive with --ntasks-per-gpu")
	case s.NtasksPerTres != 0 && s.NtasksPerNode != 0:
		return exclusive("--ntasks-per-node is mutually exclusive with --ntasks-per-gpu and SLURM_NTASKS_PER_GPU")
	case s.CpusPerTres != "" && s.CpusPerTask != 0:
		return badGPUs("give one of them", "--cpus-per-gpu is mutually exclusive with --cpus-per-task")
	case r.Given("gpus-per-task") && s.NumTasks == 0 && s.TresPerJob == "" && s.NtasksPerNode == 0 && !r.Given("nodes"):
		return badGPUs("add --ntasks",
			"Failed to validate job spec. --gpus-per-task used without either --gpus or -n/--ntasks is not allowed.")
	case s.TresPerSocket != "" && s.SocketsPerNode == 0:
		return badGPUs("add --sockets-per-node", "--gpus-per-socket option requires --sockets-per-node specification")
	}
	return nil
}

const mixedTypesWords = "Invalid GRES specification (with and without type identification)"

// checkGPUTypes requires that either all GPU options name types or none does.
func (r *Request) checkGPUTypes() error {
	with, without := false, false
	for _, list := range [...]string{r.gres, r.gpusPerNode, r.Spec.TresPerJob, r.Spec.TresPerSocket, r.Spec.TresPerTask} {
		for _, g := range parts(list) {
			with, without = with || g.Name == "gpu" && g.Type != "", without || g.Name == "gpu" && g.Type == ""
		}
	}
	if with && without {
		return &opt.ValueError{Lines: []string{mixedTypesWords}, Exit: 1, Hint: "name the type in all of them or in none"}
	}
	return nil
}

// summary describes the request: "requested GPUs: 2 in total, 4 on each node".
func (g gpuRequest) summary() string {
	var parts []string
	for _, part := range [...]struct {
		n     uint64
		where string
	}{{g.all, "in total"}, {g.node, "on each node"}, {g.socket, "on each socket"}, {g.task, "for each task"}} {
		if part.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.n, part.where))
		}
	}
	return "requested GPUs: " + strings.Join(parts, ", ")
}

// checkNodes compares the GPUs in total, per node and per socket.
func (g gpuRequest) checkNodes() error {
	hint := g.summary()
	if g.node > 0 && (g.node < g.socket || g.node < g.task) && (g.all == 0 || g.all >= g.node) {
		return badGPUs(hint, "Failed to ensure --gpus >= --gpus-per-task")
	}
	if g.node > 0 && g.all > 0 {
		nodes := g.all / g.node
		switch {
		case g.all < g.node:
			return badGPUs(hint, "Failed to ensure --gpus >= --gres=gpu/--gpus-per-node >= --gpus-per-socket")
		case g.all%g.node != 0:
			return badGPUs(hint, "Failed to validate job spec, --gpus is not multiple of --gres=gpu/--gpus-per-node")
		case g.lo > 0 && nodes < g.lo || g.hi > 0 && nodes > g.hi:
			return badGPUs("omit --gpus or --nodes",
				"Failed to validate job spec. Based on --gpu and --gres=gpu/--gpus-per-node required nodes (%d) doesn't fall between "+
					"min_nodes (%d) and max_nodes (%d) boundaries.", nodes, g.lo, g.hi)
		}
	}
	switch {
	case g.all > 0 && g.all < g.socket:
		return badGPUs(hint, "Failed to ensure --gpus >= --gres=gpu/--gpus-per-node >= --gpus-per-socket")
	case g.all > 0 && g.all < g.lo:
		return badGPUs("each node of the job needs at least one GPU", "Failed to validate job spec, --gpus < -N")
	case g.node > 0 && g.socket > 0 && g.node != g.socket*g.sockets:
		return badGPUs(hint,
			"Failed to validate job spec. Based on --gres=gpu/--gpus-per-node and --gpus-per-socket required number of sockets differ "+
				"from --sockets-per-node.")
	}
	return nil
}

// checkTasks compares GPUs and tasks.
func (g gpuRequest) checkTasks() error {
	switch {
	case g.task > 0 && g.all > 0 && g.all%g.task != 0:
		return badGPUs(fmt.Sprintf("%d GPUs cannot be divided into tasks with %d GPUs each", g.all, g.task),
			"Failed to validate job spec, --gpus not multiple of --gpus-per-task")
	case g.task > 0 && g.all > 0 && g.tasks > 0 && g.all != g.tasks*g.task:
		return badGPUs(fmt.Sprintf("--ntasks times --gpus-per-task is %d GPUs, but --gpus is %d: omit --gpus or --ntasks",
			g.tasks*g.task, g.all),
			"Failed to validate job spec. Based on --gpus and --gpus-per-task number of requested tasks differ from -n/--ntasks.")
	case g.task > 0 && g.socket%g.task != 0:
		return badGPUs(fmt.Sprintf("%d GPUs on each socket cannot be divided into tasks with %d GPUs each", g.socket, g.task),
			"Failed to validate job spec, --gpus-per-socket not multiple of --gpus-per-task.")
	case g.task > 0 && g.node > 0 && g.node%g.task != 0:
		return badGPUs(fmt.Sprintf("%d GPUs on each node cannot be divided into tasks with %d GPUs each", g.node, g.task),
			"Failed to validate job spec, --gres=gpu/--gpus-per-node not multiple of --gpus-per-task.")
	case g.task > 0 && g.node > 0 && g.perNode > 0 && g.node != g.task*g.perNode:
		return badGPUs(fmt.Sprintf("--ntasks-per-node times --gpus-per-task is %d GPUs, but %d are requested on each node",
			g.perNode*g.task, g.node),
			"Failed to validate job spec. Based on --gres=gpu/--gpus-per-node and --gpus-per-task requested number of tasks per node "+
				"differ from --ntasks-per-node.")
	case g.perGPU > 0 && g.all+g.node == 0 && g.tasks == 0 && g.lo == 0:
		return badGPUs("add --gpus or --ntasks",
			"gres_job_state_validate: --ntasks-per-tres needs either a GRES GPU specification or a node/ntask specification")
	case g.perGPU > 0 && g.all+g.node == 0 && g.tasks > 0 && g.tasks/g.perGPU < g.lo:
		return badGPUs(fmt.Sprintf("%d tasks with %d per GPU use %d GPUs, but each of the %d nodes needs one", g.tasks, g.perGPU,
			g.tasks/g.perGPU, g.lo), "Failed to validate job spec, --gpus < -N")
	case g.perGPU > 0 && g.all+g.node == 0 && g.tasks%g.perGPU != 0:
		return badGPUs(fmt.Sprintf("%d tasks cannot be divided into groups of %d", g.tasks, g.perGPU),
			"Failed to validate job spec, -n/--ntasks has to be a multiple of --ntasks-per-gpu.")
	}
	return nil
}

// checkPerGPU requires a GPU for memory per GPU.
func (r *Request) checkPerGPU() error {
	g := r.gpuRequest()
	if r.Spec.MemPerGpuMib > 0 && g.task+g.socket+g.node+g.all+g.perGPU == 0 {
		return badGPUs("add --gpus, or use --mem or --mem-per-cpu instead",
			"Requested mem_per_tres=gres/gpu:%d but did not request any GPU.", r.Spec.MemPerGpuMib)
	}
	return nil
}

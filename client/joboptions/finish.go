package joboptions

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/conf/hostlist"
)

// Finish checks combinations of options and completes the specification. Call it once, after the last source.
func (r *Request) Finish() error {
	for _, check := range [...]func() error{r.checkVerbosity, r.checkGPUs, r.useHint, r.checkPartition, r.checkArbitrary, r.checkNodeList,
		r.fewerTasks, r.checkTimes, r.checkContainer} {
		if err := check(); err != nil {
			return r.inWords(err)
		}
	}
	r.combine()
	return nil
}

func (r *Request) combine() {
	s := r.Spec
	r.tasksOfNodeInfo()
	s.TresPerNode = joined(r.gres, r.gpusPerNode)
	s.Switches = r.reqSwitches
	if s.Switches != "" && !strings.Contains(s.Switches, "@") && r.waitSwitches != "" {
		s.Switches += "@" + r.waitSwitches
	}
	if s.WorkDir == "" {
		s.WorkDir = r.Dir
	}
}

// tasksOfNodeInfo derives the number of tasks from -B: one per requested thread, unless another option sets the number (sbatch(1),
// "may implicitly set the number of tasks"). The options that set one part of -B, and --hint, do the same if the number of nodes is
// known. It is not known with a range of nodes.
func (r *Request) tasksOfNodeInfo() {
	s := r.Spec
	nodes := max(s.MinNodes, 1)
	said := r.Given("nodes")
	if names, err := hostlist.Expand(s.ReqNodes); err == nil && len(names) > 0 && s.MinNodes == 0 {
		slices.Sort(names)
		nodes, said = uint32(len(slices.Compact(names))), true
	}
	parts := said && s.SocketsPerNode|s.CoresPerSocket|s.ThreadsPerCore != 0
	if !r.Given("extra-node-info") && !parts || r.Given("ntasks") || r.Given("ntasks-per-node") || s.MinNodes != s.MaxNodes {
		return
	}
	if n := uint64(nodes) * uint64(max(s.SocketsPerNode, 1)) * uint64(max(s.CoresPerSocket, 1)) * uint64(max(s.ThreadsPerCore,
		1)); n <= math.MaxInt32 {
		s.NumTasks = uint32(n)
	}
}

// GPUsPerNode is the value of --gpus-per-node, "2" or "a100:2"; empty if it was not given (sbatch(1), SLURM_GPUS_PER_NODE). The
// specification merges it with --gres.
func (r *Request) GPUsPerNode() string {
	return strings.ReplaceAll(r.gpusPerNode, tresPrefix+"gpu:", "")
}

func joined(a, b string) string {
	if a != "" && b != "" {
		return a + "," + b
	}
	return a + b
}

func (r *Request) checkVerbosity() error {
	if r.Quiet && r.Verbose > 0 {
		return &opt.ValueError{Lines: []string{"don't specify both --verbose (-v) and --quiet (-Q)"}, Exit: 1}
	}
	return nil
}

// useHint applies --hint, unless the same source or a higher one gives a more specific option, which disables the hint (sbatch(1)).
func (r *Request) useHint() error {
	s := r.Spec
	for _, other := range [...]string{"ntasks-per-core", "threads-per-core", "cores-per-socket", "extra-node-info"} {
		if r.Given(other) && r.GivenBy(other) >= r.GivenBy("hint") {
			s.Hint = ""
		}
	}
	switch s.Hint {
	case "compute_bound", "nomultithread":
		s.ThreadsPerCore = 1
	case "memory_bound":
		s.CoresPerSocket, s.ThreadsPerCore = 1, 1
	}
	return nil
}

// checkPartition rejects an empty name, which comes from an unset variable in a script.
func (r *Request) checkPartition() error {
	if !r.Given("partition") || strings.Trim(r.Spec.Partition, ",") != "" {
		return nil
	}
	return &opt.ValueError{Lines: []string{"invalid partition specified: (null)", refusedJob +
		msg.CodeInvalidPartition.Phrase()}, Exit: 1,
		Hint: "--partition has no name; omit it to use the default partition"}
}

// checkNodeList rejects a node list that is longer than -N allows.
func (r *Request) checkNodeList() error {
	s := r.Spec
	if s.ReqNodes == "" || s.MaxNodes == 0 || r.Given("nodefile") {
		return nil
	}
	names, err := hostlist.Expand(s.ReqNodes)
	if err != nil {
		return badHosts("nodelist", s.ReqNodes, err)
	}
	distinct := make(map[string]struct{}, len(names))
	for _, n := range names {
		distinct[n] = struct{}{}
	}
	if n := uint32(len(distinct)); n > s.MaxNodes {
		return &opt.ValueError{Lines: []string{fmt.Sprintf("invalid number of nodes (-N %d-%d)", n, s.MaxNodes)}, Exit: 1,
			Hint: msg.Singular(fmt.Sprintf("--nodelist names %d nodes and --nodes allows %d", n, s.MaxNodes))}
	}
	return nil
}

// fewerTasks reduces the number of nodes, requested or listed, to the number of tasks, keeping the first ones. Like Slurm it warns.
func (r *Request) fewerTasks() error {
	s := r.Spec
	if !r.Given("ntasks") {
		return nil
	}
	names, _ := hostlist.Expand(s.ReqNodes) // checkNodeList or the controller rejects an invalid list
	slices.Sort(names)
	names = slices.Compact(names)
	nodes := max(s.MinNodes, uint32(len(names)))
	if nodes <= s.NumTasks {
		return nil
	}
	r.Warnings = append(r.Warnings, fmt.Sprintf("can't run %d processes on %d nodes, setting nnodes to %d", s.NumTasks, nodes, s.NumTasks))
	s.MinNodes, s.MaxNodes, s.NodesSet = s.NumTasks, s.NumTasks, ""
	if uint32(len(names)) > s.NumTasks {
		s.ReqNodes = hostlist.Fold(names[:s.NumTasks])
	}
	return nil
}

func (r *Request) checkTimes() error {
	s := r.Spec
	if s.DeadlineNs != 0 && s.BeginNs > s.DeadlineNs {
		return &opt.ValueError{Lines: []string{"Incompatible begin and deadline time specification"}, Exit: 1,
			Hint: "the job would begin after its deadline"}
	}
	if s.TimeMinS != 0 && s.TimeLimitS != 0 && s.TimeMinS > s.TimeLimitS {
		return &opt.ValueError{Lines: []string{refusedJob + msg.CodeInvalidTimeMin.Phrase()}, Exit: 1,
			Hint: "--time-min is longer than --time"}
	}
	return nil
}

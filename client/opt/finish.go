package opt

import (
	"fmt"
	"strings"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/conf/hostlist"
)

// Finish checks what options mean together and completes the specification. It is called once, after the last source.
func (r *Request) Finish() error {
	for _, check := range [...]func() error{r.checkVerbosity, r.checkGPUs, r.checkHint, r.checkNodeList, r.checkTimes} {
		if err := check(); err != nil {
			return err
		}
	}
	r.combine()
	return nil
}

func (r *Request) combine() {
	s := r.Spec
	s.TresPerNode = joined(r.gres, r.gpusPerNode)
	s.Switches = r.reqSwitches
	if s.Switches != "" && !strings.Contains(s.Switches, "@") && r.waitSwitches != "" {
		s.Switches += "@" + r.waitSwitches
	}
	if s.WorkDir == "" {
		s.WorkDir = r.Dir
	}
}

func joined(a, b string) string {
	if a != "" && b != "" {
		return a + "," + b
	}
	return a + b
}

func (r *Request) checkVerbosity() error {
	if r.Quiet && r.Verbose > 0 {
		return &ValueError{Lines: []string{"don't specify both --verbose (-v) and --quiet (-Q)"}, Exit: 1}
	}
	return nil
}

// checkGPUs is sbatch(1), --gpus-per-task, --gpus-per-socket and --ntasks-per-gpu.
func (r *Request) checkGPUs() error {
	s := r.Spec
	gres := msg.CodeInvalidGres.Phrase()
	switch {
	case s.NtasksPerTres != 0 && r.Given("gpus-per-task"):
		return fatal("give one of them", "--gpus-per-task is mutually exclusive with --ntasks-per-gpu and SLURM_NTASKS_PER_GPU")
	case s.NtasksPerTres != 0 && s.TresPerSocket != "":
		return fatal("give one of them", "--gpus-per-socket is mutually exclusive with --ntasks-per-gpu")
	case s.NtasksPerTres != 0 && s.NtasksPerNode != 0:
		return fatal("give one of them", "--ntasks-per-node is mutually exclusive with --ntasks-per-gpu")
	case r.Given("gpus-per-task") && s.NumTasks == 0 && s.TresPerJob == "" && s.NtasksPerNode == 0:
		return &ValueError{Lines: []string{"Failed to validate job spec. --gpus-per-task used without either --gpus or -n/--ntasks is not allowed.", gres}, Exit: 1, Hint: "add --ntasks"}
	case s.TresPerSocket != "" && s.SocketsPerNode == 0:
		return &ValueError{Lines: []string{"--gpus-per-socket option requires --sockets-per-node specification", gres}, Exit: 1, Hint: "add --sockets-per-node"}
	case typed(r.gres) && untyped(r.gpusPerNode), untyped(r.gres) && typed(r.gpusPerNode):
		return &ValueError{Lines: []string{"Invalid GRES specification (with and without type identification)", gres}, Exit: 1, Hint: "name the type in both or in neither"}
	}
	return nil
}

// typed and untyped ask whether a list "gres/gpu:a100:2" names the type of its GPUs.
func typed(list string) bool {
	return strings.HasPrefix(list, "gres/gpu:") && strings.Count(list, ":") >= 2
}

func untyped(list string) bool {
	return strings.HasPrefix(list, "gres/gpu:") && strings.Count(list, ":") == 1
}

func (r *Request) checkHint() error {
	if r.Spec.Hint == "" {
		return nil
	}
	for _, other := range [...]string{"ntasks-per-core", "threads-per-core", "cores-per-socket", "extra-node-info"} {
		if r.Given(other) && r.GivenBy(other) == r.GivenBy("hint") {
			return fatal("give one of them", "Following options are mutually exclusive with --hint: --ntasks-per-core, --threads-per-core, -B and --cores-per-socket")
		}
	}
	return nil
}

// checkNodeList refuses more named nodes than -N allows.
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
		return &ValueError{Lines: []string{fmt.Sprintf("invalid number of nodes (-N %d-%d)", n, s.MaxNodes)}, Exit: 1,
			Hint: fmt.Sprintf("--nodelist names %d nodes and --nodes allows %d", n, s.MaxNodes)}
	}
	return nil
}

func (r *Request) checkTimes() error {
	s := r.Spec
	if s.TimeMinS != 0 && s.TimeLimitS != 0 && s.TimeMinS > s.TimeLimitS {
		return &ValueError{Lines: []string{"Batch job submission failed: " + msg.CodeInvalidTimeLimit.Phrase()}, Exit: 1, Hint: "--time-min is longer than --time"}
	}
	return nil
}

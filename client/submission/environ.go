// Package submission collects what a job takes from the submitting process (environment, limits, session), sends the submission
// until it is answered, and holds the allocations that salloc and srun request.
package submission

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/client/opt"
)

// Limits of a job's environment.
const (
	MaxEnvVars  = 10000
	MaxEnvBytes = 1 << 20
)

// Export is a parsed --export.
type Export struct {
	all   bool // ALL, or no --export
	Login bool // start with the login environment: NONE, NIL or a list without ALL (sbatch(1), --export)
	// names are NAME and NAME=value, in order. Those before ALL are overridden by the submitter's environment, those after it
	// override it (observed; sbatch(1) mentions only the former).
	before, names []string
}

func ParseExport(value string) Export {
	x := Export{}
	if value == "" {
		return Export{all: true}
	}
	for _, item := range splitExport(value) {
		switch {
		case strings.EqualFold(item, "ALL"):
			x.all = true
			x.before, x.names = append(x.before, x.names...), nil
		case strings.EqualFold(item, "NONE"), strings.EqualFold(item, "NIL"), item == "":
		default:
			x.names = append(x.names, item)
		}
	}
	x.Login = !x.all
	return x
}

// splitExport splits at the commas outside quotes; the quotes are kept, as in a real sbatch.
func splitExport(value string) []string {
	var items []string
	quote, begin := byte(0), 0
	for i := 0; i < len(value); i++ {
		switch c := value[i]; {
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote = c
		case quote == 0 && c == ',':
			items = append(items, value[begin:i])
			begin = i + 1
		}
	}
	return append(items, value[begin:])
}

// Environment is a list NAME=value without duplicate names.
type Environment struct {
	Vars  []string
	index map[string]int
}

func NewEnvironment(vars []string) *Environment {
	e := &Environment{Vars: make([]string, 0, len(vars)+8), index: make(map[string]int, len(vars)+8)}
	for _, v := range vars {
		if name, _, ok := strings.Cut(v, "="); ok && name != "" {
			e.Put(name, v)
		}
	}
	return e
}

func (e *Environment) Put(name, nameValue string) {
	if i, ok := e.index[name]; ok {
		e.Vars[i] = nameValue
		return
	}
	e.index[name] = len(e.Vars)
	e.Vars = append(e.Vars, nameValue)
}

func (e *Environment) Set(name, value string) { e.Put(name, name+"="+value) }

func (e *Environment) Has(name string) bool { _, ok := e.index[name]; return ok }

// Add adds variables that are not set yet.
func (e *Environment) Add(vars []string) {
	for _, v := range vars {
		if name, _, ok := strings.Cut(v, "="); ok && name != "" && !e.Has(name) {
			e.Put(name, v)
		}
	}
}

// Exported returns the part of the submitter's environment that the job gets. It always includes Slurm's and Sluice's own
// variables.
func Exported(environ []string, x Export) *Environment {
	return exportedOf(OuterJobRemoved(environ), x)
}

func exportedOf(environ []string, x Export) *Environment {
	out := NewEnvironment(nil)
	source := NewEnvironment(environ)
	out.export(x.before, source)
	for _, v := range source.Vars {
		if x.all || strings.HasPrefix(v, "SLURM_") || strings.HasPrefix(v, "SLUICE_") {
			name, _, _ := strings.Cut(v, "=")
			out.Put(name, v)
		}
	}
	out.export(x.names, source)
	return out
}

// ExportedStep returns the part for the tasks of a step. They belong to the allocation in which srun runs, so variables that
// describe it are kept.
func ExportedStep(environ []string, x Export) *Environment {
	return exportedOf(environ, x)
}

// export sets the variables that --export names: NAME with the submitter's value, NAME=value as given.
func (e *Environment) export(items []string, source *Environment) {
	for _, item := range items {
		name, _, given := strings.Cut(item, "=")
		if given {
			e.Put(name, item)
		} else if i, known := source.index[name]; known {
			e.Put(name, source.Vars[i])
		}
	}
}

// OuterJobRemoved removes the variables that describe the allocation in which sbatch itself runs: a job submitted from a job is not
// part of it. (Slurm 22.05 keeps SLURM_NTASKS, SLURM_MEM_PER_NODE and others, which then contradict the new job.)
func OuterJobRemoved(environ []string) []string {
	inside := slices.ContainsFunc(environ, func(v string) bool { return strings.HasPrefix(v, "SLURM_JOB_ID=") })
	if !inside {
		return environ
	}
	gpus := slices.ContainsFunc(environ, func(v string) bool {
		return strings.HasPrefix(v, "SLURM_JOB_GPUS=") || strings.HasPrefix(v, "SLURM_STEP_GPUS=")
	})
	out := make([]string, 0, len(environ))
	for _, v := range environ {
		name, _, _ := strings.Cut(v, "=")
		if !ofAllocation(name) && !(gpus && ofDevices(name)) {
			out = append(out, v)
		}
	}
	return out
}

func ofDevices(name string) bool {
	switch name {
	case "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE":
		return true
	}
	return false
}

func ofAllocation(name string) bool {
	if name == "SLURMD_NODENAME" || strings.HasPrefix(name, "SLURM_JOB") {
		return true
	}
	rest, ok := strings.CutPrefix(name, "SLURM_")
	if !ok {
		return false
	}
	for _, p := range [...]string{"ARRAY_", "CPUS_", "CPU_BIND", "GPUS", "GPU_BIND", "GPU_FREQ", "SHARDS", "MEM_", "NTASKS", "STEP",
		"SUBMIT_", "TASK", "TOPOLOGY_", "TRES_", "LAUNCH_", "SRUN_COMM_", "RLIMIT_"} {
		if strings.HasPrefix(rest, p) {
			return true
		}
	}
	switch rest {
	case "NNODES", "NODELIST", "NODEID", "NODE_ALIASES", "NPROCS", "PROCID", "LOCALID", "GTIDS", "RESTART_COUNT", "CLUSTER_NAME",
		"WORKING_CLUSTER", "PRIO_PROCESS", "UMASK", "EXPORT_ENV", "GET_USER_ENV", "DISTRIBUTION", "THREADS_PER_CORE", "HET_SIZE",
		"OVERCOMMIT":
		return true
	}
	return false
}

// Check enforces the limits.
func (e *Environment) Check() error {
	total := 0
	for _, v := range e.Vars {
		total += len(v) + 1
	}
	if len(e.Vars) > MaxEnvVars || total > MaxEnvBytes {
		return &opt.ValueError{Lines: []string{"Batch job submission failed: Job script or environment too large"}, Exit: 1,
			Hint: fmt.Sprintf(
				"the environment has %d variables with %d bytes, the limit is %d with %d; --export=NONE or --export=NAME,… sends less",
				len(e.Vars), total, MaxEnvVars, MaxEnvBytes)}
	}
	return nil
}

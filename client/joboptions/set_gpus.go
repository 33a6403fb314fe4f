package joboptions

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/conf/tres"
)

// tresPrefix is Slurm's prefix of generic resources in TresPerNode and the like since 23.11.
const tresPrefix = "gres/"

func setGres(r *Request, value string, _ bool) error {
	if strings.EqualFold(value, "help") {
		r.GresHelp = true
		return nil
	}
	list, err := tres.ParseGres(value)
	if mixed := mixedTypes("gres", value, err); mixed != nil {
		return mixed
	}
	if err != nil {
		return &opt.ValueError{Lines: []string{msg.CodeInvalidGres.Phrase()}, Exit: 1,
			Hint: fmt.Sprintf("--gres=%s: %v", opt.Quoted(value), err)}
	}
	r.gres = tres.FormatGres(list, tresPrefix)
	return nil
}

// mixedTypes returns Slurm's error for a list with types for only some of its GPUs; nil for other errors.
func mixedTypes(option, value string, err error) error {
	var mixed *tres.MixedTypesError
	if !errors.As(err, &mixed) {
		return nil
	}
	return &opt.ValueError{Lines: []string{mixedTypesWords}, Exit: 1, Hint: fmt.Sprintf("--%s=%s: %v", option, opt.Quoted(value), err)}
}

func gpus(option, value string) (string, error) {
	list, err := tres.ParseGPUs(value)
	if mixed := mixedTypes(option, value, err); mixed != nil {
		return "", mixed
	}
	if err != nil {
		return "", invalid(option, value, err)
	}
	return tres.FormatGres(list, tresPrefix), nil
}

func setGPUs(r *Request, value string, _ bool) (err error) {
	r.Spec.TresPerJob, err = gpus("gpus", value)
	return err
}

func setGPUsPerNode(r *Request, value string, _ bool) (err error) {
	r.gpusPerNode, err = gpus("gpus-per-node", value)
	return err
}

func setGPUsPerSocket(r *Request, value string, _ bool) (err error) {
	r.Spec.TresPerSocket, err = gpus("gpus-per-socket", value)
	return err
}

func setGPUsPerTask(r *Request, value string, _ bool) (err error) {
	r.Spec.TresPerTask, err = gpus("gpus-per-task", value)
	return err
}

func setCPUsPerGPU(r *Request, value string, _ bool) error {
	n, err := number("cpus-per-gpu", value, 1)
	if err != nil {
		return err
	}
	r.Spec.CpusPerTres = "gres/gpu:" + strconv.FormatUint(uint64(n), 10)
	return nil
}

// setTresPerTask reads "cpu=2,gres/gpu=1" (or with ':'); cpu is --cpus-per-task.
func setTresPerTask(r *Request, value string, _ bool) error {
	var kept []string
	for _, item := range strings.Split(value, ",") {
		name, count, ok := cutLast(item, "=:")
		n, err := strconv.ParseUint(count, 10, 31)
		switch {
		case !ok || err != nil || n == 0:
			return invalid("tres-per-task", value, "expected resource=count, separated by commas, as in cpu=2,gres/gpu=1")
		case name == "cpu":
			r.Spec.CpusPerTask = uint32(n)
		case strings.HasPrefix(name, tresPrefix):
			list, err := tres.ParseGres(name + ":" + count)
			if err != nil {
				return invalid("tres-per-task", value, err)
			}
			kept = append(kept, tres.FormatGres(list, tresPrefix))
		default:
			return invalid("tres-per-task", value, "resources of a task are cpu and gres/…")
		}
	}
	r.Spec.TresPerTask = strings.Join(kept, ",")
	return nil
}

func cutLast(s, seps string) (before, after string, ok bool) {
	i := strings.LastIndexAny(s, seps)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}

// setGPUBind checks [verbose,]none|closest|single:n|per_task:n|map_gpu:…|mask_gpu:….
func setGPUBind(r *Request, value string, _ bool) error {
	kind := strings.TrimPrefix(value, "verbose,")
	name, arg, given := strings.Cut(kind, ":")
	ok := false
	var why []string
	switch strings.ToLower(name) {
	case "none", "closest", "n", "c":
		ok = !given
	case "single", "per_task":
		ok = allDigits(arg)
	case "map_gpu":
		ok, why = bindList(arg, 10)
	case "mask_gpu":
		ok, why = bindList(arg, 16)
	}
	if !ok {
		return &opt.ValueError{Lines: append(why, "Invalid --gpu-bind argument: gpu:"+opt.Quoted(value)), Exit: 255,
			Hint: "expected [verbose,] and one of none, closest, single:n, per_task:n, map_gpu:list, mask_gpu:list"}
	}
	r.Spec.TresBind = "gres/gpu:" + value
	return printable("gpu-bind", value)
}

// setTresBind reads "gres/gpu:" followed by a value of --gpu-bind, with map and mask for map_gpu and mask_gpu. Tasks cannot be
// bound to other resources.
func setTresBind(r *Request, value string, given bool) error {
	kind, ok := strings.CutPrefix(value, "gres/gpu:")
	how, verbose := strings.CutPrefix(kind, "verbose,")
	for _, word := range [...]string{"map", "mask"} {
		if list, ours := strings.CutPrefix(how, word+":"); ours {
			how = word + "_gpu:" + list
		}
	}
	if kind = how; verbose {
		kind = "verbose," + how
	}
	if !ok || setGPUBind(r, kind, given) != nil {
		return &opt.ValueError{Lines: []string{"Invalid --tres-bind argument: " + opt.Quoted(value)}, Exit: 255,
			Hint: "expected gres/gpu: and one of none, closest, single:n, per_task:n, map:list, mask:list"}
	}
	return nil
}

// bindList checks the numbers of map_gpu (base 10) or the masks of mask_gpu (base 16), each optionally followed by *count.
func bindList(list string, base int) (ok bool, why []string) {
	for item := range strings.SplitSeq(list, ",") {
		number, count, times := strings.Cut(item, "*")
		if base == 16 {
			number = strings.TrimPrefix(strings.ToLower(number), "0x")
		}
		if _, err := strconv.ParseUint(number, base, 64); err == nil && (!times || allDigits(count)) {
			continue
		}
		text := item
		if times && !allDigits(count) {
			number = count
		} else if base == 16 {
			text = number
		}
		if bad := strings.TrimLeft(number, "0123456789abcdef"[:base]); bad != "" {
			why = []string{"Failed to validate " + opt.Quoted(text) + ", offending character is " + opt.Quoted(string([]rune(bad)[:1]))}
		}
		return false, why
	}
	return true, nil
}

// setGPUFreq checks level[,memory=level][,verbose] with level low, medium, high, highm1 or MHz.
func setGPUFreq(r *Request, value string, _ bool) error {
	for i, part := range strings.Split(value, ",") {
		level, isMemory := strings.CutPrefix(part, "memory=")
		if part == "verbose" || ((i == 0 || isMemory) && gpuLevel(level)) {
			continue
		}
		return &opt.ValueError{Lines: []string{"Invalid --gpu-freq argument: gpu:" + opt.Quoted(value)}, Exit: 255,
			Hint: "expected low, medium, high, highm1 or MHz, then [,memory=…][,verbose]"}
	}
	r.Spec.TresFreq = "gpu:" + value
	return nil
}

func gpuLevel(s string) bool {
	switch s {
	case "low", "medium", "high", "highm1":
		return true
	}
	return allDigits(s)
}

func setGresFlags(r *Request, value string, _ bool) error {
	chosen := map[string]string{} // by the property that a flag sets
	for f := range strings.SplitSeq(strings.ToLower(value), ",") {
		about := map[string]string{"disable-binding": "binding", "enforce-binding": "binding", "one-task-per-sharing": "sharing",
			"multiple-tasks-per-sharing": "sharing",
			"allow-task-sharing":         "tasks"}[f]
		switch {
		case chosen[about] != "" && chosen[about] != f:
			return invalid("gres-flags", value, chosen[about]+" and "+f+" are mutually exclusive")
		case about == "":
			return invalid("gres-flags", value,
				"expected enforce-binding, disable-binding, one-task-per-sharing, multiple-tasks-per-sharing or allow-task-sharing")
		}
		chosen[about] = f
	}
	r.Spec.GresFlags = strings.ToLower(value)
	return nil
}

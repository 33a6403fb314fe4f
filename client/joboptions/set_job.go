package joboptions

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/internal/passwd"
)

func setChdir(r *Request, value string, _ bool) error {
	path, err := r.expandHome("chdir", value)
	if err != nil {
		return err
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(r.Dir, path)
	}
	r.Spec.WorkDir = path
	return printable("chdir", path)
}

// expandHome expands a tilde that no shell has expanded, as in "#SBATCH -o ~/x-%j.out" and "--output=~/x". Slurm takes it as the
// name of a directory that never exists, and the job fails; if such a directory does exist, it is used. A file name that begins
// with a tilde and has no slash stays as it is.
func (r *Request) expandHome(option, value string) (string, error) {
	first, _, inFolder := strings.Cut(value, "/")
	if !strings.HasPrefix(value, "~") || !inFolder && option != "chdir" {
		return value, nil
	}
	if _, err := os.Lstat(filepath.Join(r.Dir, first)); err == nil {
		return value, nil
	}
	expand := passwd.ExpandHome
	if r.Home != "" && first == "~" {
		expand = func(path string) (string, error) { return strings.TrimRight(r.Home, "/") + path[1:], nil }
	}
	path, err := expand(value)
	if err != nil {
		return "", invalid(option, value, err)
	}
	return path, nil
}

func setClusters(r *Request, value string, _ bool) error {
	r.Clusters = value
	return printable("clusters", value)
}

// file reads a file name pattern; "none" means /dev/null (sbatch(1), "filename pattern").
func (r *Request) file(option, value string) (string, error) {
	if strings.EqualFold(value, "none") {
		return "/dev/null", nil
	}
	path, err := r.expandHome(option, value)
	if err != nil {
		return "", err
	}
	if tail := value[strings.IndexByte(value+"/", '/'):]; path != value { // an expanded home directory is not a pattern
		path = strings.ReplaceAll(strings.TrimSuffix(path, tail), "%", "%%") + tail
	}
	return path, printable(option, path)
}

func setOutput(r *Request, value string, _ bool) (err error) {
	r.Spec.StdOut, err = r.file("output", value)
	return err
}

func setError(r *Request, value string, _ bool) (err error) {
	r.Spec.StdErr, err = r.file("error", value)
	return err
}

func setInput(r *Request, value string, _ bool) (err error) {
	r.Spec.StdIn, err = r.file("input", value)
	return err
}

func setOpenMode(r *Request, value string, _ bool) error {
	switch strings.ToLower(value) {
	case "a", "append":
		r.Spec.OpenMode = msg.OpenAppend
	case "t", "truncate":
		r.Spec.OpenMode = msg.OpenTruncate
	default:
		return invalid("open-mode", value, "expected append or truncate")
	}
	return nil
}

func setExport(r *Request, value string, _ bool) error {
	r.Spec.ExportEnv = value
	if value == "" { // --export= exports nothing, unlike an absent --export
		r.Spec.ExportEnv = "NONE"
	}
	return printable("export", value)
}

func setUserEnv(r *Request, value string, given bool) error {
	digits := strings.TrimRight(value, "SsLl")
	if given && (len(value)-len(digits) > 1 || (digits != "" && !allDigits(digits))) {
		return invalid("get-user-env", value, "expected seconds, then S or L, as in 8L")
	}
	r.UserEnv, r.UserEnvGiven = value, true
	return nil
}

func setNice(r *Request, value string, given bool) error {
	const most = 2147483645 // slurm.h, NICE_OFFSET
	if !given || value == "" {
		r.Spec.Nice = 100
		return nil
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil && !allDigits(strings.TrimPrefix(value, "-")) {
		return invalidNumber("nice", value, "expected a whole number; --nice alone means 100")
	}
	if err != nil || n > most || n < -most {
		return &opt.ValueError{Lines: []string{"Invalid --nice value, out of range (+/- 2147483645)"}, Exit: 255}
	}
	r.Spec.Nice = int32(n)
	return nil
}

func setNoKill(r *Request, value string, given bool) error {
	switch {
	case !given || strings.EqualFold(value, "set"):
		r.Spec.NoKill = true
	case strings.EqualFold(value, "off") || strings.EqualFold(value, "no"):
		r.Spec.NoKill = false
	default:
		return invalid("no-kill", value, "expected off, or no value")
	}
	return nil
}

func setKillOnInvalidDep(r *Request, value string, _ bool) error {
	switch strings.ToLower(value) {
	case "yes":
		r.Spec.KillOnInvalidDep = msg.Yes
	case "no":
		r.Spec.KillOnInvalidDep = msg.No
	default:
		return invalid("kill-on-invalid-dep", value, "expected yes or no")
	}
	return nil
}

func setPriority(r *Request, value string, _ bool) error {
	if strings.EqualFold(value, "TOP") {
		r.Spec.Priority = msg.Unlimited - 1
		return nil
	}
	if n, err := strconv.ParseInt(value, 10, 64); err == nil && n < 0 {
		return &opt.ValueError{Lines: []string{"Priority must be >= 0"}, Exit: 255}
	}
	n, err := strconv.ParseUint(value, 10, 32)
	if err != nil || n >= uint64(msg.Unlimited) {
		return invalidNumber("priority", value, "expected a number or TOP")
	}
	r.Spec.Priority = uint32(n)
	if n == 0 {
		r.Spec.Hold = true // Slurm holds a job by priority 0
	}
	return nil
}

// profiles are the values of --profile as jobs and views show them, in order.
var profiles = [...]string{"Energy", "Lustre", "Network", "Task"}

func setProfile(r *Request, value string, _ bool) error {
	if strings.EqualFold(value, "none") {
		r.Spec.Profile = "None"
		return nil
	}
	asked := strings.Split(value, ",")
	if i := slices.IndexFunc(asked, func(a string) bool { return strings.EqualFold(a, "all") }); i >= 0 {
		asked = append(slices.Delete(asked, i, i+1), profiles[:]...)
	}
	var kinds []string
	for _, name := range profiles {
		if slices.ContainsFunc(asked, func(a string) bool { return strings.EqualFold(a, name) }) {
			kinds = append(kinds, name)
		}
	}
	for _, a := range asked {
		if !slices.ContainsFunc(kinds, func(k string) bool { return strings.EqualFold(a, k) }) {
			return &opt.ValueError{Lines: []string{"invalid --profile=" + opt.Quoted(value) + " option"}, Exit: 255,
				Hint: "expected all, none, or any of energy, task, lustre, network"}
		}
	}
	r.Spec.Profile = strings.Join(kinds, ",")
	return nil
}

func setWaitAllNodes(r *Request, value string, _ bool) error {
	if !digits(value) {
		return invalidNumber("wait-all-nodes", value, "expected 0 or 1")
	}
	if value != "0" && value != "1" {
		return invalid("wait-all-nodes", value, "expected 0 or 1")
	}
	r.Spec.WaitAllNodes = value == "1"
	return nil
}

// setHint reads --hint (sbatch(1)).
func setHint(r *Request, value string, _ bool) error {
	switch value {
	case "help":
		r.HintHelp = true
		return nil
	case "compute_bound", "memory_bound", "multithread", "nomultithread":
	default:
		return &opt.ValueError{Lines: []string{"unrecognized --hint argument \"" + opt.Quoted(value) + "\", see --hint=help"}, Exit: 1,
			Hint: "expected compute_bound, memory_bound, multithread or nomultithread"}
	}
	r.Spec.Hint = value
	return nil
}

// setPropagate reads ALL or NONE alone, or names in upper case, as in sbatch(1).
func setPropagate(r *Request, value string, given bool) error {
	if !given || value == "" {
		value = "ALL"
	}
	for name := range strings.SplitSeq(value, ",") {
		if _, ok := RlimitNumber(name); !ok && name != "" && value != "ALL" && value != "NONE" {
			return &opt.ValueError{Lines: []string{"Bad rlimit name: " + opt.Quoted(name),
				"--propagate=" + opt.Quoted(value) + " is not valid."},
				Exit: 1,
				Hint: "expected ALL or NONE, or names such as CORE,MEMLOCK,NOFILE,STACK"}
		}
	}
	r.Propagate, r.PropagateGiven = value, true
	return nil
}

// rlimits are the limits of --propagate with their Linux numbers (sbatch(1), getrlimit(2)).
var rlimits = [...]struct {
	name   string
	number uint32
}{{"CPU", 0}, {"FSIZE", 1}, {"DATA", 2}, {"STACK", 3}, {"CORE", 4}, {"RSS", 5}, {"NPROC", 6}, {"NOFILE", 7}, {"MEMLOCK", 8}, {"AS", 9}}

// RlimitNumber returns the number of a limit by name.
func RlimitNumber(name string) (uint32, bool) {
	for _, l := range rlimits {
		if l.name == strings.TrimPrefix(name, "RLIMIT_") {
			return l.number, true
		}
	}
	return 0, false
}

// RlimitName returns the name of a limit, "" if --propagate does not know it.
func RlimitName(number uint32) string {
	for _, l := range rlimits {
		if l.number == number {
			return l.name
		}
	}
	return ""
}

// Propagated returns the numbers of the limits that the job inherits from the submitting process.
func (r *Request) Propagated() []uint32 {
	var numbers []uint32
	for _, l := range rlimits {
		for _, name := range strings.Split(r.Propagate, ",") {
			if name == "ALL" || strings.TrimPrefix(name, "RLIMIT_") == l.name {
				numbers = append(numbers, l.number)
				break
			}
		}
	}
	return numbers
}

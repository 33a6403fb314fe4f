package joboptions

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
)

// Source is where an option was given; a higher source overrides a lower one.
type Source uint8

const (
	Script      Source = iota + 1 // #SBATCH line
	Environment                   // SBATCH_* variable
	CommandLine
)

// Request is the result of a command's options: the job's specification, and instructions for the command itself. Create it with
// New, call Apply for each source in ascending order, then Finish.
type Request struct {
	Spec *msg.JobSpec

	Wrap       string
	WrapGiven  bool
	Parsable   bool
	TestOnly   bool
	Wait       bool
	Quiet      bool
	Verbose    int
	IgnorePBS  bool
	ExportFile string
	// UserEnv asks for the login environment: "" for no, otherwise the timeout in seconds and the mode as given ("8L").
	UserEnv      string
	UserEnvGiven bool
	UID, GID     string // as given; the command resolves names
	Propagate    string // limits to propagate, "ALL" by default
	// PropagateGiven: the user set it, which overrides PropagateResourceLimits of slurm.conf.
	PropagateGiven bool
	Clusters       string
	Ignored        []string // options that are accepted but have no effect
	Warnings       []string // values that were adjusted; not printed with -Q
	NotAllowed     []string // options that the cluster's configuration disables
	GresHelp       bool     // --gres=help, --hint=help …: print and stop
	HintHelp       bool

	Run Run // for srun and salloc
	// InJob: the request is for a step of an existing job, so some rules for jobs do not apply.
	InJob bool

	Dir  string    // the command's working directory, absolute
	Home string    // replaces a tilde; "" = $HOME
	Now  time.Time // reference for relative times, in the user's time zone

	cmd  Commands
	from map[string]Source

	applying        Source // source of the option that is being applied
	containerMounts Source // source of the current mounts

	order []setting // every option applied, for Settings

	gres, gpusPerNode string
	reqSwitches       string
	waitSwitches      string
	readFile          func(string) ([]byte, error)
	hostfile          string // SLURM_HOSTFILE
}

// New returns an empty request of one command. now carries the user's time zone; readFile is for --nodefile.
func New(cmd Commands, dir string, now time.Time, readFile func(string) ([]byte, error)) *Request {
	return &Request{Spec: &msg.JobSpec{}, Propagate: "ALL", Dir: dir, Now: now, cmd: cmd, from: make(map[string]Source, 8),
		readFile: readFile}
}

// Given reports whether any source gave an option.
func (r *Request) Given(long string) bool { return r.from[long] != 0 }

// GivenBy returns the source of an option's current value.
func (r *Request) GivenBy(long string) Source { return r.from[long] }

type setting struct{ name, value string }

// Settings calls each for every option in effect with its value ("" for one without), in the order of the table.
func (r *Request) Settings(each func(name, value string)) {
	for i := range Options {
		name := Options[i].Long
		if r.from[name] == 0 {
			continue
		}
		value := ""
		for _, s := range r.order {
			if s.name == name {
				value = s.value
			}
		}
		if name == "verbose" {
			value = strconv.Itoa(r.Verbose)
		}
		each(name, opt.Quoted(value))
	}
}

// Names returns the rows of a command, for Scan. Index i of a hit belongs to Row(i) of the same command.
func Names(cmd Commands) []opt.Name {
	names := make([]opt.Name, 0, len(Options))
	for i := range Options {
		if Options[i].Cmds&cmd != 0 {
			names = append(names, Options[i].Name)
		} else {
			names = append(names, opt.Name{})
		}
	}
	return names
}

// Apply applies one hit to the request.
func (r *Request) Apply(source Source, hit opt.Hit) error {
	o := &Options[hit.Index]
	if source == Script && o.commandOnly() {
		return nil // sbatch ignores it in a script
	}
	if err := r.exclude(source, o); err != nil {
		return err
	}
	r.from[o.Canonical()], r.applying = source, source
	r.order = append(r.order, setting{o.Canonical(), hit.Value})
	return r.inWords(o.apply(r, hit.Value, hit.Given))
}

// refusedJob starts sbatch's message about a job that the controller would reject.
const refusedJob = "Batch job submission failed: "

// inWords replaces refusedJob by the phrase of the command.
func (r *Request) inWords(err error) error {
	lead := ""
	switch r.cmd {
	case Srun:
		lead = "Unable to allocate resources: "
	case Salloc:
		lead = "Job submit/allocate failed: "
	default:
		return err
	}
	var v *opt.ValueError
	if errors.As(err, &v) {
		for i, line := range v.Lines {
			if why, ok := strings.CutPrefix(line, refusedJob); ok {
				v.Lines[i] = lead + why
			}
		}
	}
	return err
}

// commandOnly reports whether sbatch accepts the option only in argv.
func (o *Option) commandOnly() bool {
	switch o.Long {
	case "wrap", "help", "usage", "version":
		return true
	}
	return false
}

func (o *Option) apply(r *Request, value string, given bool) error {
	switch {
	case o.text != nil:
		if err := printable(o.Long, value); err != nil {
			return err
		}
		*o.text(r.Spec) = value
	case o.count != nil:
		n, err := number(o.Long, value, 1)
		if err != nil {
			return err
		}
		*o.count(r.Spec) = n
	case o.flag != nil:
		*o.flag(r.Spec) = true
	case o.ignored:
		if err := checkIgnored(o.Long, value); err != nil {
			return err
		}
		r.Ignored = append(r.Ignored, o.Long)
	default:
		return o.set(r, value, given)
	}
	return nil
}

// exclude enforces groups. Two options of a group from the same source are an error; from different sources, the higher one
// replaces the lower one.
func (r *Request) exclude(source Source, o *Option) error {
	if o.group == noGroup {
		return nil
	}
	for i := range Options {
		other := &Options[i]
		if other.group != o.group || other.Long == o.Long || r.from[other.Long] == 0 {
			continue
		}
		if r.from[other.Long] == source {
			if err := conflict(o.group); err != nil {
				return err
			}
		}
		delete(r.from, other.Long)
		other.clear(r)
	}
	return nil
}

func conflict(g group) error {
	switch g {
	case memory:
		return exclusive("--mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.")
	case specialized:
		return exclusive("-S/--core-spec and --thread-spec options are mutually exclusive")
	}
	return nil // the later one wins
}

// FromEnvironment applies the command's environment variables. lookup distinguishes empty from unset variables.
func (r *Request) FromEnvironment(lookup func(string) (string, bool)) error {
	for i := range Options {
		o := &Options[i]
		if o.Cmds&r.cmd == 0 {
			continue
		}
		value, variable, ok := o.lookup(r.cmd, lookup)
		if !ok || (o.Arg == opt.NoArg && !truth(value)) {
			continue
		}
		if err := r.Apply(Environment, opt.Hit{Index: i, Value: value, Given: o.Arg == opt.Required || value != ""}); err != nil {
			return At(err, "from the variable "+variable)
		}
	}
	if r.cmd != Srun {
		if v, ok := lookup(r.cmd.prefix() + "WAIT4SWITCH"); ok {
			r.waitSwitches = v
		}
	}
	r.hostfile, _ = lookup("SLURM_HOSTFILE")
	return nil
}

func (o *Option) lookup(cmd Commands, lookup func(string) (string, bool)) (value, variable string, ok bool) {
	if cmd == Srun && o.Srun != "" {
		for _, variable = range o.Variables(cmd) {
			if value, ok = lookup(variable); ok {
				return value, variable, true
			}
		}
		return "", "", false
	}
	if o.Env != "" {
		variable = cmd.prefix() + o.Env
		if value, ok = lookup(variable); ok {
			return value, variable, true
		}
	}
	if o.EnvAlso != "" {
		value, ok = lookup(o.EnvAlso)
	}
	return value, o.EnvAlso, ok
}

// At adds the position of an option to an error.
func At(err error, where string) error {
	switch e := err.(type) {
	case *opt.ValueError:
		e.Hint = strings.TrimPrefix(e.Hint+" ("+where+")", " ")
	case *opt.UsageError:
		e.Hint = strings.TrimPrefix(e.Hint+" ("+where+")", " ")
	}
	return err
}

// truth reads the variable of an option without argument: empty, "yes" or a number other than 0 is true (sbatch(1), INPUT
// ENVIRONMENT VARIABLES).
func truth(value string) bool {
	if value == "" || value == "yes" {
		return true
	}
	digits := value
	if digits[0] == '-' || digits[0] == '+' {
		digits = digits[1:]
	}
	nonzero := false
	for _, c := range []byte(digits) {
		if c < '0' || c > '9' {
			return false
		}
		nonzero = nonzero || c != '0'
	}
	return nonzero
}

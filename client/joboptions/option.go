package joboptions

import (
	"fmt"
	"unicode/utf8"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
)

// Commands is a set of the commands that share the table.
type Commands uint8

const (
	Sbatch Commands = 1 << iota
	Salloc
	Srun

	all   = Sbatch | Salloc | Srun
	alloc = Sbatch | Salloc
)

func (c Commands) prefix() string {
	switch c {
	case Salloc:
		return "SALLOC_"
	case Srun:
		return "SLURM_"
	}
	return "SBATCH_"
}

// Option is one row of the table: one option of the commands that describe a job. Exactly one of text, count, flag, set and ignored
// defines its effect.
type Option struct {
	opt.Name
	Cmds Commands
	// Env is the variable that sets it, without the command's prefix SBATCH_, SALLOC_ or SLURM_; EnvAlso is a complete name.
	Env     string
	EnvAlso string
	// Srun are the variables that srun reads instead: complete names, in order of precedence; "-" for none.
	Srun string
	// Meta is the name of the argument in the help text; Help is the description.
	Meta, Help string
	// Section groups the help text.
	Section Section

	text  func(*msg.JobSpec) *string // a word, stored unchanged
	count func(*msg.JobSpec) *uint32 // a number from 1
	flag  func(*msg.JobSpec) *bool
	set   func(r *Request, value string, given bool) error
	// ignored: accepted for existing scripts, without effect; the command reports it with -v.
	ignored bool

	// clear undoes the option when a higher source (argv over environment over script) gives another option of its group.
	clear func(*Request)
	group group
}

// Section is a section of the help text.
type Section uint8

const (
	Running Section = iota
	Resources
	Constraints
	GPUs
	Files
	Containers
	Submission
	Other
)

var sectionTitles = [...]string{
	Running: "Parallel run options", Resources: "Consumable resources related options", Constraints: "Constraint options",
	GPUs: "GPU scheduling options", Files: "File and environment options",
	Containers: "Container options", Submission: "Other options", Other: "Help options",
}

// group is a set of options that exclude each other.
type group uint8

const (
	noGroup group = iota
	memory
	sharing
	specialized
	requeue
)

// invalid returns Slurm's error for a malformed value.
func invalid(option, value string, why any) error {
	return &opt.ValueError{Lines: []string{"Invalid --" + option + " specification"}, Exit: 255,
		Hint: fmt.Sprintf("--%s=%s: %v", option, opt.Quoted(value), why)}
}

func invalidNumber(option, value, why string) error {
	return &opt.ValueError{Lines: []string{fmt.Sprintf("Invalid numeric value \"%s\" for --%s.", opt.Quoted(value), option)}, Exit: 1,
		Hint: why}
}

func exclusive(line string) error {
	return &opt.ValueError{Lines: []string{line}, Hint: "give one of them", Exit: 1, Fatal: true}
}

// printable rejects a text with hidden characters.
func printable(option, value string) error {
	for i, r := range value {
		if r != utf8.RuneError && opt.Hidden(r) { // invalid UTF-8 is printed escaped
			return invalid(option, value, fmt.Sprintf("byte %d is the control character or direction mark %U; remove it", i, r))
		}
	}
	return nil
}

package opt

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/sluice-hpc/sluice/client/msg"
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
	Name
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

// ValueError rejects the value of an option. Lines are Slurm's message, one line of output each; Hint has the value and a valid
// one.
type ValueError struct {
	Plain []string // lines that Slurm prints first, without the command's name in front
	Lines []string
	Hint  string
	Exit  int  // exit code: 255 for most of sbatch's, 1 for numbers; 0: SLURM_EXIT_ERROR
	Fatal bool // printed as "fatal:" instead of "error:"
}

func (e *ValueError) Error() string {
	if len(e.Lines) == 0 {
		return strings.Join(e.Plain, " ")
	}
	return e.Lines[0]
}

// invalid returns Slurm's error for a malformed value.
func invalid(option, value string, why any) error {
	return &ValueError{Lines: []string{"Invalid --" + option + " specification"}, Exit: 255,
		Hint: fmt.Sprintf("--%s=%s: %v", option, quoted(value), why)}
}

func invalidNumber(option, value, why string) error {
	return &ValueError{Lines: []string{fmt.Sprintf("Invalid numeric value \"%s\" for --%s.", quoted(value), option)}, Exit: 1, Hint: why}
}

func exclusive(line string) error {
	return &ValueError{Lines: []string{line}, Hint: "give one of them", Exit: 1, Fatal: true}
}

// quoted prepares a value for a message, without control characters.
func quoted(s string) string {
	const most = 80
	out := make([]rune, 0, len(s))
	for _, r := range s {
		if hidden(r) {
			r = '?'
		}
		if len(out) == most {
			return string(out) + "…"
		}
		out = append(out, r)
	}
	return string(out)
}

// hidden reports whether r is invisible on a terminal: control characters and marks that change the direction of text.
func hidden(r rune) bool {
	switch {
	case r < 0x20, r >= 0x7f && r < 0xa0, r == 0xfffd, r == 0x200e, r == 0x200f, r == 0x061c,
		r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
		return true
	}
	return false
}

// printable rejects a text with hidden characters.
func printable(option, value string) error {
	for i, r := range value {
		if r != utf8.RuneError && hidden(r) { // invalid UTF-8 is printed escaped
			return invalid(option, value, fmt.Sprintf("byte %d is the control character or direction mark %U; remove it", i, r))
		}
	}
	return nil
}

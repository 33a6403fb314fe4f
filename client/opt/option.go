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
// says what it does.
type Option struct {
	Name
	Cmds Commands
	// Env is the variable that sets it, without the command's prefix SBATCH_, SALLOC_ or SLURM_; EnvAlso is a whole name.
	Env     string
	EnvAlso string
	// Srun are the variables that srun reads instead, whole names, the first that is set counts; "-" = none.
	Srun string
	// Meta names the argument in the help text; Help is its one line.
	Meta, Help string
	// Section groups the help text.
	Section Section

	text  func(*msg.JobSpec) *string // a word, kept as it is
	count func(*msg.JobSpec) *uint32 // a number from 1
	flag  func(*msg.JobSpec) *bool
	set   func(r *Request, value string, given bool) error
	// ignored: accepted for the sake of existing scripts, without effect; the command says so.
	ignored bool

	// clear undoes the option when another of its group is given on a higher level (argv over environment over script).
	clear func(*Request)
	group group
}

// Section of the help text.
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

// group is a set of options of which one excludes the others.
type group uint8

const (
	noGroup group = iota
	memory
	sharing
	specialized
	requeue
)

// ValueError is an option whose value is refused. Lines are Slurm's words, one line of output each; Hint says what was given
// and what would be right.
type ValueError struct {
	Plain []string // lines that Slurm prints without the command's name in front, before the others
	Lines []string
	Hint  string
	Exit  int  // exit code: sbatch gives 255 for most, 1 for numbers; 0 leaves it to SLURM_EXIT_ERROR
	Fatal bool // printed as "fatal:" and not as "error:"
}

func (e *ValueError) Error() string {
	if len(e.Lines) == 0 {
		return strings.Join(e.Plain, " ")
	}
	return e.Lines[0]
}

// invalid is Slurm's refusal of a malformed value.
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

// quoted shows a value in a message without its control characters.
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

// hidden reports whether r does not show as itself on a terminal: control characters and the marks that change the
// direction of text.
func hidden(r rune) bool {
	switch {
	case r < 0x20, r >= 0x7f && r < 0xa0, r == 0xfffd, r == 0x200e, r == 0x200f, r == 0x061c,
		r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
		return true
	}
	return false
}

// printable refuses a text that would not print as what it is.
func printable(option, value string) error {
	for i, r := range value {
		if r != utf8.RuneError && hidden(r) { // what is not UTF-8 is shown escaped
			return invalid(option, value, fmt.Sprintf("byte %d is the control character or direction mark %U; write it without", i, r))
		}
	}
	return nil
}

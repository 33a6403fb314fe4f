package opt

import "strings"

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

// Quoted prepares a value for a message, without control characters.
func Quoted(s string) string {
	const most = 80
	out := make([]rune, 0, len(s))
	for _, r := range s {
		if Hidden(r) {
			r = '?'
		}
		if len(out) == most {
			return string(out) + "…"
		}
		out = append(out, r)
	}
	return string(out)
}

// Hidden reports whether r is invisible on a terminal: control characters and marks that change the direction of text.
func Hidden(r rune) bool {
	switch {
	case r < 0x20, r >= 0x7f && r < 0xa0, r == 0xfffd, r == 0x200e, r == 0x200f, r == 0x061c,
		r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
		return true
	}
	return false
}

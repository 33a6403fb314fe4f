// Package slurmargs parses the command lines of slurmctld(8) and slurmd(8), which wrappers and units written for Slurm's
// daemons use. Options of one letter may be written together (-Dvvv) and with their value (-f/etc/slurm.conf, -n-5), as
// getopt(3) reads them.
package slurmargs

import (
	"slices"
	"strings"
)

// Options are the letters that a daemon has, and which of them take a value; Long are its other options, which may begin with one dash, and
// Bare those of them that take no value.
type Options struct {
	Flags, Values string
	Long, Bare    []string
}

// Split writes each option apart, up to "--" or a subcommand, whose options are its own: that is the first argument which is neither an
// option nor the value of one. What it does not know stays as it is, as does "-" alone, a value.
func (o Options) Split(args []string) (out []string) {
	mayBeValue := false
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "-" || !strings.HasPrefix(arg, "-") {
			if !mayBeValue {
				return append(out, args[i:]...)
			}
			out, mayBeValue = append(out, arg), false
			continue
		}
		if arg == "--" {
			return append(out, args[i:]...)
		}
		name, _, joined := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if strings.HasPrefix(arg, "--") || slices.Contains(o.Long, name) {
			out, mayBeValue = append(out, arg), !joined && !o.bare(name)
			continue
		}
		parts, wantsValue := o.letters(arg)
		out = append(out, parts...)
		if wantsValue && i+1 < len(args) {
			i++
			out = append(out, args[i])
		}
		mayBeValue = !joined && slices.Equal(parts, []string{arg}) && !o.bare(name) && !wantsValue // not known here
	}
	return out
}

// bare reports whether an option takes no value.
func (o Options) bare(name string) bool {
	return slices.Contains(o.Bare, name) || len(name) == 1 && strings.Contains(o.Flags, name)
}

// letters takes one argument apart. wantsValue: the next argument is the value of the last letter.
func (o Options) letters(arg string) (out []string, wantsValue bool) {
	for i, c := range arg[1:] {
		rest := arg[1+i+1:]
		switch {
		case strings.ContainsRune(o.Values, c) && rest != "":
			return append(out, "-"+string(c)+"="+strings.TrimPrefix(rest, "=")), false
		case strings.ContainsRune(o.Values, c):
			return append(out, "-"+string(c)), true
		case strings.ContainsRune(o.Flags, c):
			out = append(out, "-"+string(c))
		default:
			return []string{arg}, false
		}
	}
	return out, false
}

// Level is SlurmctldDebug or SlurmdDebug as a number of -v says it: verbose, debug, debug2, …; "" without any.
func Level(v int) string {
	names := []string{"", "verbose", "debug", "debug2", "debug3", "debug4", "debug5"}
	return names[max(0, min(v, len(names)-1))]
}

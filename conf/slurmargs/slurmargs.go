// Package slurmargs takes the command lines of slurmctld(8) and slurmd(8) apart, which wrappers and units of Slurm's daemons have: options
// of one letter may be written together (-Dvvv), with their value (-f/etc/slurm.conf, -n-5), as getopt(3) reads them.
package slurmargs

import (
	"slices"
	"strings"
)

// Options are the letters that a daemon has, and which of them take a value; Long are its other options, which may begin with one dash.
type Options struct {
	Flags, Values string
	Long          []string
}

// Split writes each option apart, up to "--". What it does not know stays as it is, as does "-" alone, a value.
func (o Options) Split(args []string) (out []string) {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if arg == "--" {
			return append(out, args[i:]...)
		}
		if arg == "-" || !strings.HasPrefix(arg, "-") || strings.HasPrefix(arg, "--") || slices.Contains(o.Long, name) {
			out = append(out, arg)
			continue
		}
		parts, wantsValue := o.letters(arg)
		out = append(out, parts...)
		if wantsValue && i+1 < len(args) {
			i++
			out = append(out, args[i])
		}
	}
	return out
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

// Package slurmargs parses the command lines of slurmctld(8) and slurmd(8), which wrappers and units written for Slurm's daemons
// use. As in getopt(3), one-letter options may be joined (-Dvvv) and may have their value attached (-f/etc/slurm.conf, -n-5).
package slurmargs

import (
	"slices"
	"strings"
)

// Options are the one-letter options of a daemon; those in Values take a value. Long are its other options, which may also begin
// with a single dash; those in Bare take no value.
type Options struct {
	Flags, Values string
	Long, Bare    []string
}

// Split separates joined options. It stops at "--" or at a subcommand, the first argument that is neither an option nor a value,
// because options after that belong to the subcommand. Unknown options are kept as they are, and so is "-", which is a value.
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
		mayBeValue = !joined && slices.Equal(parts, []string{arg}) && !o.bare(name) && !wantsValue // unknown option
	}
	return out
}

// bare reports whether an option takes no value.
func (o Options) bare(name string) bool {
	return slices.Contains(o.Bare, name) || len(name) == 1 && strings.Contains(o.Flags, name)
}

// letters splits one argument. wantsValue: the next argument is the value of the last letter.
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

// Level converts a count of -v to SlurmctldDebug or SlurmdDebug: verbose, debug, debug2, …; "" for 0.
func Level(v int) string {
	names := []string{"", "verbose", "debug", "debug2", "debug3", "debug4", "debug5"}
	return names[max(0, min(v, len(names)-1))]
}

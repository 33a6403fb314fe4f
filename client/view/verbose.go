package view

import (
	"fmt"
	"strconv"

	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/opt"
)

// Null is Slurm's output for a missing text.
const Null = "(null)"

// Given has the options of a command line and its variables as written; Null for those without an argument.
type Given map[string]string

// Add records an option, and counts -v.
func (g Given) Add(name string, h opt.Hit) {
	switch {
	case name == "verbose":
		h.Value = strconv.Itoa(g.Verbose() + 1)
	case !h.Given:
		h.Value = Null
	}
	g[name] = h.Value
}

// Verbose is the number of -v.
func (g Given) Verbose() int {
	n, _ := strconv.Atoi(g["verbose"])
	return n
}

// Or returns the value of the first of these options that was given, else none.
func (g Given) Or(none string, names ...string) string {
	for _, name := range names {
		if v, ok := g[name]; ok {
			return v
		}
	}
	return none
}

// Has returns Slurm's yes or no for whether one of the options was given.
func (g Given) Has(names ...string) string { return strconv.FormatBool(g.any(names)) }

// Flag is Has as a number.
func (g Given) Flag(names ...string) string {
	if g.any(names) {
		return "1"
	}
	return "0"
}

func (g Given) any(names []string) bool {
	for _, name := range names {
		if _, ok := g[name]; ok {
			return true
		}
	}
	return false
}

const rule = "-----------------------------\n"

// PrintOptions prints a block of -v: pairs of a name, padded to Slurm's width, and a value.
func PrintOptions(env *command.Env, pairs ...string) {
	fmt.Fprint(env.Stdout, rule)
	for i := 0; i+1 < len(pairs); i += 2 {
		fmt.Fprintln(env.Stdout, pairs[i]+pairs[i+1])
	}
}

// Listed returns the elements of a list as NAME[0] = value, for PrintOptions.
func Listed[T any](name string, list []T) (pairs []string) {
	for i, v := range list {
		pairs = append(pairs, fmt.Sprintf("%s[%d] = ", name, i), fmt.Sprint(v))
	}
	return pairs
}

// EndOptions ends the blocks, followed by blank lines.
func EndOptions(env *command.Env, blank string) { fmt.Fprint(env.Stdout, rule+blank) }

package command

import (
	"strings"

	"github.com/sluice-hpc/sluice/client/opt"
)

// Option is one row of a command's own table: spelling, environment variable, name of the argument, one line of description, and
// the section of --help and the manual page ("" for the first).
type Option struct {
	opt.Name
	Env, Meta, Help, Group string
	// For verbs of `sluice`: the type of the argument, and its default.
	Is      Kind
	Default string
}

func NamesOf(options []Option) []opt.Name {
	names := make([]opt.Name, len(options))
	for i := range options {
		names[i] = options[i].Name
	}
	return names
}

// Options reads a command line. It calls set for each option in turn, with the name of its row, and returns the words that are not
// options.
func (e *Env) Options(options []Option, argv []string, set func(name string, h opt.Hit) error) (words []string, err error) {
	names := NamesOf(options)
	hits, words, err := e.Scan(names, argv, true)
	for i := 0; err == nil && i < len(hits); i++ {
		err = set(Canonical(&names[hits[i].Index]), hits[i])
	}
	return words, err
}

// JoinOptional appends the word after -j or -s to it: Slurm reads it as the argument although that is optional.
func JoinOptional(names []opt.Name, argv []string) []string {
	var out []string
	for i := 0; i < len(argv); i++ {
		word := argv[i]
		if word == "--" {
			return append(out, argv[i:]...)
		}
		last := lastOption(names, word)
		hasNext := i+1 < len(argv)
		switch {
		case last == nil || !hasNext || last.Arg == opt.NoArg:
			out = append(out, word)
		case last.Arg == opt.Required:
			out = append(out, word, argv[i+1])
			i++
		case strings.HasPrefix(argv[i+1], "-") || last.Long != "jobs" && last.Long != "steps" && last.Canon != "jobs" &&
			last.Canon != "steps":
			out = append(out, word)
		default:
			if cluster := strings.TrimSuffix(word, string(last.Short)); !strings.HasPrefix(word, "--") && len(cluster) > 1 {
				out = append(out, cluster)
			}
			out = append(out, "--"+last.Long+"="+argv[i+1])
			i++
		}
	}
	return out
}

// lastOption returns the option at the end of a word that still needs its argument, nil if there is none.
func lastOption(names []opt.Name, word string) *opt.Name {
	if long, ok := strings.CutPrefix(word, "--"); ok {
		for i := range names {
			if names[i].Long == long {
				return &names[i]
			}
		}
		return nil
	}
	if len(word) < 2 || word[0] != '-' {
		return nil
	}
	for k := 1; k < len(word); k++ {
		for i := range names {
			if names[i].Short != word[k] {
				continue
			}
			if k == len(word)-1 {
				return &names[i]
			}
			if names[i].Arg != opt.NoArg {
				return nil
			}
		}
	}
	return nil
}

func Canonical(n *opt.Name) string {
	if n.Canon != "" {
		return n.Canon
	}
	return n.Long
}

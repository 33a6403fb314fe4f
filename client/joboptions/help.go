package joboptions

import (
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/internal/version"
)

// Sections returns the titles of the help text's sections, in order.
func Sections() []string { return sectionTitles[:] }

func (s Section) String() string { return sectionTitles[s] }

// Variables returns the environment variables that set an option of a command, highest precedence first.
func (o *Option) Variables(cmd Commands) (names []string) {
	if cmd == Srun && o.Srun != "" {
		return strings.Fields(strings.TrimPrefix(o.Srun, "-"))
	}
	if o.Env != "" {
		names = append(names, cmd.prefix()+o.Env)
	}
	if o.EnvAlso != "" {
		names = append(names, o.EnvAlso)
	}
	return names
}

// usageWidth is the line length of a usage text.
const usageWidth = 90

// Usage formats a command's options for the short help: options with a letter as given in letters, all others as [--name=meta],
// then rest.
func Usage(cmd Commands, name string, letters []string, rest string) string {
	items := append([]string{}, letters...)
	for i := range Options {
		o := &Options[i]
		if o.Cmds&cmd == 0 || o.Help == "" || o.Section == Other || o.Canon != "" {
			continue
		}
		said := o.Short != 0 && slices.ContainsFunc(letters, func(l string) bool {
			return strings.HasPrefix(l, "[-"+string(rune(o.Short))) && !strings.HasPrefix(l, "[--")
		})
		switch {
		case said:
		case o.Arg == opt.Required:
			items = append(items, "[--"+o.Long+"="+o.Meta+"]")
		case o.Arg == opt.Optional:
			items = append(items, "[--"+o.Long+"[="+o.Meta+"]]")
		default:
			items = append(items, "[--"+o.Long+"]")
		}
	}
	head := "Usage: " + name
	var b strings.Builder
	line := head
	for _, item := range append(items, rest) {
		if len(line)+1+len(item) > usageWidth {
			b.WriteString(line + "\n")
			line = strings.Repeat(" ", len(head))
		}
		line += " " + item
	}
	return b.String() + line + "\n"
}

// IsLong reports whether a word is a long option of a command, with or without "=VALUE".
func IsLong(cmd Commands, word string) bool {
	name, _, _ := strings.Cut(word, "=")
	for i := range Options {
		if Options[i].Cmds&cmd != 0 && Options[i].Long == name && name != "" {
			return true
		}
	}
	return false
}

// Info returns the text of --help, --usage or --version, in the order of precedence; "" if none was given.
func Info(hits []opt.Hit, help, usage func() string) string {
	for _, h := range hits {
		switch Options[h.Index].Long {
		case "help":
			return help()
		case "usage":
			return usage()
		case "version":
			return version.Interface()
		}
	}
	return ""
}

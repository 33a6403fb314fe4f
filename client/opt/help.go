package opt

import (
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/internal/version"
)

// Info is the text of --help, --usage or --version, whichever comes first; "" when none was given.
func Info(hits []Hit, help, usage func() string) string {
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

// Sections are the titles under which the options stand, in their order.
func Sections() []string { return sectionTitles[:] }

func (s Section) String() string { return sectionTitles[s] }

// Variables are those that set an option of a command, the one that counts first.
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

// usageWidth is how long the lines of a usage are.
const usageWidth = 90

// Usage lists the options of a command as the short help has them: those that are said by a letter as they are given in letters, every
// other one as [--name=meta], and rest at the end.
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
		case o.Arg == Required:
			items = append(items, "[--"+o.Long+"="+o.Meta+"]")
		case o.Arg == Optional:
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

// helpColumn is where the explanations begin.
const helpColumn = 34

// WriteHelp writes one option as Slurm's help does: "  -t, --time=limit    time limit".
func WriteHelp(b *strings.Builder, n Name, meta, help string) {
	line := "      "
	if n.Short != 0 {
		line = "  -" + string(rune(n.Short)) + ", "
	}
	line += "--" + n.Long
	switch {
	case n.Arg == Required:
		line += "=" + meta
	case n.Arg == Optional:
		line += "[=" + meta + "]"
	}
	if len(line) >= helpColumn {
		line += "\n" + strings.Repeat(" ", helpColumn)
	} else {
		line += strings.Repeat(" ", helpColumn-len(line))
	}
	b.WriteString(line + help + "\n")
}

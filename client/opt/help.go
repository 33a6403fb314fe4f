package opt

import "strings"

// HelpText describes the options of a command, section by section.
func HelpText(cmd Commands) string {
	var b strings.Builder
	for section := Running; section <= Other; section++ {
		b.WriteString("\n" + sectionTitles[section] + ":\n")
		for i := range Options {
			if o := &Options[i]; o.Section == section && o.Cmds&cmd != 0 && o.Help != "" {
				WriteHelp(&b, o.Name, o.Meta, o.Help)
			}
		}
	}
	return b.String()
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

package opt

import "strings"

// helpColumn is the column of the descriptions.
const helpColumn = 34

// WriteHelp writes one option in the format of Slurm's help: " -t, --time=limit time limit".
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

package batchscript

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
)

// interpreters are for files that are not shell scripts, by file name extension.
var interpreters = map[string]string{
	".py": "python3", ".r": "Rscript", ".jl": "julia", ".pl": "perl", ".rb": "ruby", ".js": "node", ".lua": "lua", ".m": "octave",
	".do": "stata -b do", ".sas": "sas",
}

// interpreter suggests the command for a file that does not begin with "#!".
func interpreter(script []byte, words []string) string {
	name, file := "the script", fileOf(words)
	if len(words) > 0 {
		name = file
	}
	run := func(command string) string {
		return fmt.Sprintf("to run it in a job: sbatch --wrap=%s", shellWord(strings.TrimSpace(command+" "+strings.Join(words, " "))))
	}
	first := 1 + bytes.Count(script[:max(0, bytes.Index(script, []byte("#!")))], []byte("\n"))
	rest, bom := bytes.CutPrefix(script, []byte("\xef\xbb\xbf"))
	by := interpreters[strings.ToLower(filepath.Ext(file))]
	switch {
	case bom && bytes.HasPrefix(rest, []byte("#!")):
		return fmt.Sprintf(
			`%s begins with a byte order mark (U+FEFF), which some editors write; "sed -i '1s/^\xEF\xBB\xBF//' %s" removes it`, name, file)
	case bytes.HasPrefix(script, []byte("\xff\xfe")), bytes.HasPrefix(script, []byte("\xfe\xff")):
		return fmt.Sprintf(`%s is UTF-16; "iconv -f UTF-16 -t UTF-8 %s > NEW" makes a script of it that can be submitted`, name, file)
	case bytes.HasPrefix(script, []byte("\x7fELF")):
		return name + " is a program, not a script; " + run("")
	case by != "":
		return fmt.Sprintf("%s is not a shell script; %s", name, run(by))
	case first > 1 && len(bytes.TrimSpace(script[:bytes.Index(script, []byte("#!"))])) == 0:
		return fmt.Sprintf("the #! is in line %d of %s; it must be the very first two characters of the file", first, name)
	case bytes.HasPrefix(bytes.TrimLeft(script, " \t"), []byte("#!")):
		return fmt.Sprintf("there are blanks before the #! of %s; it must be the very first two characters of the file", name)
	}
	text, _, _ := bytes.Cut(script, []byte("\n"))
	return fmt.Sprintf("the first line of %s is %q; if this is a shell script, put #!/bin/bash above it", name, brief(text))
}

// brief is the beginning of a text, cut between characters.
func brief(text []byte) string {
	const most = 40
	runes := []rune(string(bytes.TrimSpace(text[:min(len(text), 8*most)])))
	if len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return string(runes)
}

// shellWord quotes a text as one shell word, in double quotes if these suffice.
func shellWord(s string) string {
	if !strings.ContainsAny(s, "\"$`\\!'") {
		return `"` + s + `"`
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

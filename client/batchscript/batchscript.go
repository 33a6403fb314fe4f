// Package batchscript reads batch scripts: it rejects those that the controller would reject, and splits #SBATCH lines into
// command-line words.
//
// The rules are those of sbatch(1): directives precede the first line that is neither a comment nor blank. Within one, quotes
// group, a backslash quotes the next character, and an unquoted '#' begins a comment, even inside a word.
package batchscript

import (
	"bytes"
	"fmt"
	"strings"
)

// MaxBytes is the maximum size of a script.
const MaxBytes = 4 << 20

const prefix = "#SBATCH"

// Fault is a script that cannot be submitted. Lines is Slurm's message, one entry per line of output; Hint is the remedy.
type Fault struct {
	Lines []string
	Hint  string
}

func (f *Fault) Error() string { return strings.Join(f.Lines, " ") }

// Check reports whether a script may be submitted. words are its name and arguments as typed, empty if it is not from a file. The
// error is a *Fault.
func Check(script []byte, words []string) error {
	switch {
	case len(script) == 0:
		return &Fault{Lines: []string{"Batch script is empty!"}}
	case len(bytes.TrimSpace(script)) == 0:
		return &Fault{Lines: []string{"Batch script contains only whitespace!"}}
	case !bytes.HasPrefix(script, []byte("#!")):
		return &Fault{Lines: []string{"This does not look like a batch script.  The first",
			"line must start with #! followed by the path to an interpreter.", "For instance: #!/bin/sh"}, Hint: interpreter(script, words)}
	case bytes.IndexByte(script, 0) >= 0:
		at := bytes.IndexByte(script, 0)
		return &Fault{Lines: []string{"The Slurm controller does not allow scripts that", `contain a NULL character '\0'.`},
			Hint: fmt.Sprintf("the first one is byte %d, in line %d; submit a script that runs the program instead of the program", at,
				lineOf(script, at))}
	case bytes.Contains(script, []byte("\r\n")):
		at := bytes.Index(script, []byte("\r\n"))
		return &Fault{Lines: []string{`Batch script contains DOS line breaks (\r\n)`, `instead of expected UNIX line breaks (\n).`},
			Hint: fmt.Sprintf(`the first one ends line %d; "sed -i 's/\r$//' %s" removes them`, lineOf(script, at), fileOf(words))}
	case len(script) > MaxBytes:
		return &Fault{Lines: []string{"Batch job submission failed: Pathname of a file, directory or other parameter too long"},
			Hint: fmt.Sprintf("the script has %d bytes, the limit is %d; keep data in files beside it", len(script), MaxBytes)}
	}
	return nil
}

func fileOf(words []string) string {
	if len(words) == 0 {
		return "FILE"
	}
	return words[0]
}

func lineOf(script []byte, at int) int { return 1 + bytes.Count(script[:at], []byte("\n")) }

// Directive is one #SBATCH line, split into words.
type Directive struct {
	Line  int // from 1
	Words []string
}

// Directives returns the #SBATCH lines in effect, in order. name is the script's name for messages. The error is a *Fault.
func Directives(name string, script []byte) ([]Directive, error) {
	var found []Directive
	for line := 1; len(script) > 0; line++ {
		var text []byte
		text, script, _ = bytes.Cut(script, []byte("\n"))
		rest, ours := bytes.CutPrefix(text, []byte(prefix))
		if !ours {
			if trimmed := bytes.TrimSpace(text); len(trimmed) > 0 && trimmed[0] != '#' {
				return found, nil
			}
			continue
		}
		words, err := split(string(rest))
		if err != nil {
			return nil, &Fault{Lines: []string{fmt.Sprintf("%s: line %d: %s in [%s]", name, line, err, strings.TrimSpace(string(rest)))}}
		}
		if len(words) > 0 {
			found = append(found, Directive{Line: line, Words: words})
		}
	}
	return found, nil
}

// unmatched is an unclosed quote.
type unmatched byte

func (u unmatched) Error() string { return "Unmatched `" + string(rune(u)) + "`" }

// split splits the rest of a directive into words.
func split(s string) ([]string, error) {
	var (
		words []string
		word  []byte
		open  bool // a word has begun, even an empty quoted one
		quote byte
	)
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '\\' && quote != '\'' && i+1 < len(s):
			i++
			word, open = append(word, s[i]), true
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word = append(word, c)
		case c == '"' || c == '\'':
			quote, open = c, true
		case c == '#':
			i = len(s)
		case c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f':
			if open {
				words, word, open = append(words, string(word)), nil, false
			}
		default:
			word, open = append(word, c), true
		}
	}
	if quote != 0 {
		return nil, unmatched(quote)
	}
	if open {
		words = append(words, string(word))
	}
	return words, nil
}

// Wrap returns the script for --wrap.
func Wrap(command string) []byte {
	return []byte("#!/bin/sh\n# This script was created by sbatch --wrap.\n\n" + command + "\n")
}

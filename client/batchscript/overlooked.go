package batchscript

import (
	"bytes"
	"fmt"
	"strings"
)

// Overlooked are lines that may be intended as directives, but are not.
type Overlooked struct {
	Late   []int // "#SBATCH" after the first command
	First  int   // line of that command
	Almost []int // "# SBATCH", "#sbatch": perhaps ordinary comments
}

// Overlook searches for such lines. It skips text between "<<EOF" and "EOF", because scripts may write scripts.
func Overlook(script []byte) (o Overlooked) {
	if !bytes.Contains(script, []byte(prefix[1:])) && !bytes.Contains(script, []byte("sbatch")) {
		return o
	}
	end := "" // of a here-document
	for line := 1; len(script) > 0; line++ {
		var text []byte
		text, script, _ = bytes.Cut(script, []byte("\n"))
		trimmed := bytes.TrimSpace(text)
		directive := bytes.HasPrefix(text, []byte(prefix))
		switch {
		case end != "":
			if string(trimmed) == end {
				end = ""
			}
		case o.First > 0 && directive:
			o.Late = append(o.Late, line)
		case o.First == 0 && !directive && isAlmost(text):
			o.Almost = append(o.Almost, line)
		case len(trimmed) > 0 && trimmed[0] != '#':
			if o.First == 0 {
				o.First = line
			}
			end = hereDocument(text)
		}
	}
	return o
}

// isAlmost recognises "# SBATCH --time=5", "#sbatch --time=5", " #SBATCH --time=5".
func isAlmost(line []byte) bool {
	rest, comment := bytes.CutPrefix(bytes.TrimLeft(line, " \t"), []byte("#"))
	rest = bytes.TrimLeft(rest, " \t")
	const word = len(prefix) - 1
	return comment && len(rest) > word && bytes.EqualFold(rest[:word], []byte(prefix[1:])) &&
		bytes.HasPrefix(bytes.TrimLeft(rest[word:], " \t"), []byte("-"))
}

// hereDocument returns the word that ends a here-document that begins in this line, "" if there is none.
func hereDocument(line []byte) string {
	_, after, found := bytes.Cut(line, []byte("<<"))
	if !found || bytes.HasPrefix(after, []byte("<")) {
		return ""
	}
	after = bytes.TrimLeft(after, "- \t\\\"'")
	n := 0
	for n < len(after) && (after[n] == '_' || after[n] == '.' || after[n] == '-' || after[n] >= '0' && after[n] <= '9' ||
		after[n]|0x20 >= 'a' && after[n]|0x20 <= 'z') {
		n++
	}
	return string(after[:n])
}

// Lines formats line numbers: "line 3", "lines 3, 4 and 6 others".
func Lines(numbers []int) string {
	const most = 5
	var b strings.Builder
	b.WriteString("line")
	if len(numbers) > 1 {
		b.WriteString("s")
	}
	for i, n := range numbers {
		if i == most {
			fmt.Fprintf(&b, " and %d others", len(numbers)-most)
			break
		}
		if i > 0 {
			b.WriteString(",")
		}
		fmt.Fprintf(&b, " %d", n)
	}
	return b.String()
}

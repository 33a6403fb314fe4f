// Package filename expands the replacement symbols of --output, --error and --input (sbatch(1), "filename pattern").
//
// Where the man page is silent, the rules were observed on Slurm 22.05:
//
//   - a backslash anywhere disables all replacement, and each backslash then only quotes the next character;
//   - a number pads numeric symbols with zeros, to at most ten digits; other symbols ignore it;
//   - an unknown symbol stays as it is, but loses its percent sign if it has a number;
//   - %J is the job id alone in a batch job, %s is "batch", %a outside an array 4294967294.
package filename

import (
	"strconv"
	"strings"
)

// NoTask is the value of %a outside an array (Slurm's NO_VAL).
const NoTask uint32 = 0xfffffffe

// maxWidth is the largest number of digits that padding produces.
const maxWidth = 10

// Null is the file for output to "none".
const Null = "/dev/null"

// Values are the values of the symbols.
type Values struct {
	JobID       uint32 // %j
	IsArrayTask bool   // the default name is then slurm-%A_%a.out
	ArrayJobID  uint32 // %A; JobID when 0
	ArrayTaskID uint32 // %a and %b, when IsArrayTask
	// TaskUnknown keeps %a and %b unexpanded: a pending array is one record for all of its tasks.
	TaskUnknown bool
	Step        string // %s, and the part of %J after the dot; empty or "batch" for the batch script
	JobName     string // %x
	User        string // %u
	Host        string // %N, cut at its first dot
	NodeIndex   uint32 // %n
	Task        uint32 // %t
}

// Output returns the absolute file name for an --output pattern; an empty pattern means Slurm's default. Relative names are
// relative to workDir, the job's working directory.
func Output(pattern, workDir string, v Values) string {
	if pattern == "" {
		pattern = "slurm-%j.out"
		if v.IsArrayTask || v.TaskUnknown {
			pattern = "slurm-%A_%a.out"
		}
	}
	return absolute(pattern, workDir, v)
}

// Error returns the file name for an --error pattern; "" means the same file as standard output.
func Error(pattern, workDir string, v Values) string {
	if pattern == "" {
		return ""
	}
	return absolute(pattern, workDir, v)
}

// Input returns the file name for an --input pattern, /dev/null by default.
func Input(pattern, workDir string, v Values) string {
	if pattern == "" {
		return Null
	}
	return absolute(pattern, workDir, v)
}

func absolute(pattern, workDir string, v Values) string {
	if strings.EqualFold(pattern, "none") {
		return Null
	}
	name := Expand(pattern, v)
	if strings.HasPrefix(name, "/") {
		return name
	}
	// Not cleaned: the kernel resolves "link/../x", and the result depends on the target of link.
	return strings.TrimRight(workDir, "/") + "/" + name
}

// Expand replaces the symbols of pattern. It accepts every string.
func Expand(pattern string, v Values) string {
	if strings.ContainsRune(pattern, '\\') {
		return unquote(pattern)
	}
	var b strings.Builder
	for pattern != "" {
		i := strings.IndexByte(pattern, '%')
		if i < 0 {
			b.WriteString(pattern)
			break
		}
		b.WriteString(pattern[:i])
		n := v.symbol(&b, pattern[i:])
		pattern = pattern[i+n:]
	}
	return b.String()
}

// unquote removes one level of backslashes.
func unquote(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			if i++; i == len(s) {
				break
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// symbol expands the symbol at the start of s and returns its length in bytes.
func (v *Values) symbol(b *strings.Builder, s string) int {
	end := 1
	for end < len(s) && s[end] >= '0' && s[end] <= '9' {
		end++
	}
	if end == len(s) { // the pattern ends with a percent sign, and perhaps digits
		b.WriteString(s)
		return end
	}
	text, numeric, known := v.value(s[end])
	switch {
	case s[end] == '%' && end == 1:
		b.WriteByte('%')
	case known:
		if numeric {
			text = pad(text, s[1:end])
		}
		b.WriteString(text)
	case end == 1:
		b.WriteString(s[:2])
	default: // Slurm drops the percent sign and keeps the rest
		b.WriteString(s[1 : end+1])
	}
	return end + 1
}

func (v *Values) value(symbol byte) (text string, numeric, known bool) {
	num := func(n uint32) (string, bool, bool) { return strconv.FormatUint(uint64(n), 10), true, true }
	task := NoTask
	if v.IsArrayTask {
		task = v.ArrayTaskID
	}
	switch symbol {
	case 'A':
		if v.ArrayJobID != 0 {
			return num(v.ArrayJobID)
		}
		return num(v.JobID)
	case 'a', 'b':
		if v.TaskUnknown {
			return "%" + string(symbol), false, true
		}
		if symbol == 'b' {
			return num(task % 10)
		}
		return num(task)
	case 'j':
		return num(v.JobID)
	case 'J':
		if v.batch() {
			return num(v.JobID)
		}
		return strconv.FormatUint(uint64(v.JobID), 10) + "." + v.Step, false, true
	case 's':
		if v.batch() {
			return "batch", false, true
		}
		return v.Step, true, true
	case 'n':
		return num(v.NodeIndex)
	case 't':
		return num(v.Task)
	case 'N':
		host, _, _ := strings.Cut(v.Host, ".")
		return host, false, true
	case 'u':
		return v.User, false, true
	case 'x':
		return v.JobName, false, true
	}
	return "", false, false
}

func (v *Values) batch() bool { return v.Step == "" || v.Step == "batch" }

// pad pads text with zeros to the width in digits, at most maxWidth.
func pad(text, digits string) string {
	width := 0
	for _, d := range digits {
		if width = width*10 + int(d-'0'); width >= maxWidth {
			width = maxWidth
			break
		}
	}
	if n := width - len(text); n > 0 {
		return strings.Repeat("0", n) + text
	}
	return text
}

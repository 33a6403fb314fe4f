// Package filename expands the replacement symbols of --output, --error and --input (sbatch(1), "filename pattern").
//
// The rules were observed on Slurm 22.05 where the man page is silent:
//
//   - a backslash anywhere turns every replacement off, and each backslash then only quotes the character behind it;
//   - a number pads numeric symbols with zeroes, to at most ten digits; other symbols ignore it;
//   - a symbol that is not known stays as it is, but loses its percent sign when a number stands between;
//   - %J is the job id alone in a batch job, %s is "batch", %a outside an array 4294967294.
package filename

import (
	"strconv"
	"strings"
)

// NoTask is what %a gives outside an array (Slurm's NO_VAL).
const NoTask uint32 = 0xfffffffe

// maxWidth is the largest number of digits that padding gives.
const maxWidth = 10

// Null is where output named "none" goes.
const Null = "/dev/null"

// Values are what the symbols stand for.
type Values struct {
	JobID       uint32 // %j
	IsArrayTask bool   // the default name is then slurm-%A_%a.out
	ArrayJobID  uint32 // %A; JobID when 0
	ArrayTaskID uint32 // %a and %b, when IsArrayTask
	// TaskUnknown keeps %a and %b as they are: a pending array is one record for all of its tasks.
	TaskUnknown bool
	Step        string // %s, and behind the dot of %J; empty or "batch" for the batch script
	JobName     string // %x
	User        string // %u
	Host        string // %N, shortened at its first dot
	NodeIndex   uint32 // %n
	Task        uint32 // %t
}

// Output gives the absolute file name for an --output pattern; an empty pattern is Slurm's default.
// workDir is the job's working folder, to which relative names belong.
func Output(pattern, workDir string, v Values) string {
	if pattern == "" {
		pattern = "slurm-%j.out"
		if v.IsArrayTask || v.TaskUnknown {
			pattern = "slurm-%A_%a.out"
		}
	}
	return absolute(pattern, workDir, v)
}

// Error gives the file name for an --error pattern; "" means: the same file as standard output.
func Error(pattern, workDir string, v Values) string {
	if pattern == "" {
		return ""
	}
	return absolute(pattern, workDir, v)
}

// Input gives the file name for an --input pattern, /dev/null by default.
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
	// Not cleaned: "link/../x" goes where the kernel says, and that depends on what link is.
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

// unquote takes one level of backslashes away.
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

// symbol writes what the symbol at the start of s stands for and returns how many bytes of s it took.
func (v *Values) symbol(b *strings.Builder, s string) int {
	end := 1
	for end < len(s) && s[end] >= '0' && s[end] <= '9' {
		end++
	}
	if end == len(s) { // a percent sign, and perhaps digits, at the very end
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
	default: // Slurm then drops the percent sign and keeps the rest
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

// pad fills text with zeroes to the width that digits name, at most maxWidth.
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

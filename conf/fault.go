package conf

import (
	"fmt"
	"slices"
	"strings"
)

// Fault is one error in a configuration file.
type Fault struct {
	File string
	Line int // from 1; 0 for the file as a whole
	Msg  string
	Help string // a remedy; may be empty
}

// Error formats the fault as "file:line: message (remedy)".
func (f Fault) Error() string {
	var b strings.Builder
	b.WriteString(f.File)
	if f.Line > 0 {
		fmt.Fprintf(&b, ":%d", f.Line)
	}
	b.WriteString(": ")
	b.WriteString(f.Msg)
	if f.Help != "" {
		fmt.Fprintf(&b, " (%s)", f.Help)
	}
	return b.String()
}

// Faults are all faults of a configuration. Error prints one per line.
type Faults []Fault

func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, one := range f {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.As find each Fault.
func (f Faults) Unwrap() []error {
	out := make([]error, len(f))
	for i, one := range f {
		out[i] = one
	}
	return out
}

// maxFaults bounds the faults reported for one configuration.
const maxFaults = 200

// full reports whether further faults are dropped.
func (f Faults) full() bool { return len(f) >= maxFaults }

// add appends a fault unless it is already there: a value inherited from a DEFAULT line is read again for every node that inherits
// it.
func (f *Faults) add(one Fault) {
	if !f.full() && !slices.Contains(*f, one) {
		*f = append(*f, one)
	}
}

// nearest returns the name that s was probably meant to be, "" if none is close. Case does not count.
func nearest(s string, names []string) string {
	best, bestDistance := "", max(2, len(s)/4)+1
	for _, name := range names {
		if d := distance(strings.ToLower(s), strings.ToLower(name), bestDistance); d < bestDistance {
			best, bestDistance = name, d
		}
	}
	return best
}

// distance is the Levenshtein distance in bytes, or limit if it is at least that.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit || len(a) > 64 || len(b) > 64 {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j+1]+1, row[j]+1)
		}
	}
	return min(row[len(b)], limit)
}

func didYouMean(s string, names []string) string {
	if name := nearest(s, names); name != "" {
		return "did you mean " + name + "?"
	}
	return ""
}

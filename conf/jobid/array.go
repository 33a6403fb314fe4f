package jobid

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// maxRanges bounds the elements of one array specification, maxText the bytes of any text that this package reads.
const (
	maxRanges = 65536
	maxText   = 1 << 20
)

// Range is one element of an array specification: First, First+Step, … up to
// Last at most. Step is at least 1.
type Range struct{ First, Last, Step uint32 }

// Count returns the number of indices in the range.
func (r Range) Count() uint64 {
	return uint64(r.Last-r.First)/uint64(r.Step) + 1
}

// Array is the value of --array as written: ranges, and the number of tasks that may run at a time. Reading never expands it: a
// range of four billion tasks costs 12 bytes.
type Array struct {
	Ranges   []Range
	Throttle uint32 // tasks running at a time; 0: no limit
}

// arrayForms ends every error about an array specification.
const arrayForms = "write indices and ranges separated by commas, such as 0-31, 1,3,5 or 1-7:2, and %4 at the end for four at a time"

// ParseArray reads the value of sbatch --array: "0-31", "1,3,5", "0-31:2%4". Brackets around it are allowed, as Slurm prints them.
// The caller checks the indices against MaxArraySize, with Max and Total.
func ParseArray(s string) (*Array, error) {
	fail := func(why string, args ...any) (*Array, error) {
		return nil, fmt.Errorf("cannot read array %.80q: %s; %s", s, fmt.Sprintf(why, args...), arrayForms)
	}
	if len(s) > maxText {
		return fail("it has more than %d bytes", maxText)
	}
	list, throttle, throttled := strings.Cut(unbracket(s), "%")
	list = unbracket(list)
	a := &Array{}
	if throttled && throttle != "" { // "0-31%" has no limit, as in Slurm
		n, err := strconv.ParseUint(throttle, 10, 31)
		if err != nil {
			return fail("%.20q after the '%%' is not a number of tasks", throttle)
		}
		a.Throttle = uint32(n)
	}
	if list == "" {
		return fail("it has no index")
	}
	n := strings.Count(list, ",") + 1
	if n > maxRanges {
		return fail("it has more than %d ranges", maxRanges)
	}
	a.Ranges = make([]Range, 0, n)
	for part := range strings.SplitSeq(list, ",") {
		if part == "" {
			continue // as Slurm does
		}
		r, why := parseRange(part)
		if why != "" {
			return fail("%.40q %s", part, why)
		}
		a.Ranges = append(a.Ranges, r)
	}
	if len(a.Ranges) == 0 {
		return fail("it has no index")
	}
	return a, nil
}

func unbracket(s string) string {
	if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") {
		return s[1 : len(s)-1]
	}
	return s
}

// parseRange reads "3", "3-9" or "3-9:2"; why is the error.
func parseRange(s string) (r Range, why string) {
	span, step, stepped := strings.Cut(s, ":")
	first, last, ranged := strings.Cut(span, "-")
	if !ranged {
		last = first
	}
	if stepped && !ranged {
		return r, "has a step but no range"
	}
	var err error
	if r.First, err = index(first); err != nil {
		return r, err.Error()
	}
	if r.Last, err = index(last); err != nil {
		return r, err.Error()
	}
	if r.Step = 1; stepped {
		if r.Step, err = index(step); err != nil || r.Step == 0 {
			return r, "has a step that is not a number from 1"
		}
	}
	if r.Last < r.First {
		return r, "runs backwards"
	}
	r.Last -= (r.Last - r.First) % r.Step
	return r, ""
}

// index reads a task index or another number below 2^32-2, which Slurm reserves for "none".
func index(s string) (uint32, error) {
	if s == "" || s[0] == '+' {
		return 0, fmt.Errorf("lacks a number")
	}
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n >= math.MaxUint32-1 {
		return 0, fmt.Errorf("has %.20q, which is not a whole number below %d", s, uint32(math.MaxUint32-1))
	}
	return uint32(n), nil
}

// Max returns the largest index.
func (a *Array) Max() uint32 {
	var n uint32
	for _, r := range a.Ranges {
		n = max(n, r.Last)
	}
	return n
}

// Total returns the number of tasks if no index is repeated: an upper bound.
func (a *Array) Total() uint64 {
	var n uint64
	for _, r := range a.Ranges {
		n += r.Count()
	}
	return n
}

// MaxSpans bounds the parts of a Set when it is read: runs of adjacent indices. A range with a step has one part per index.
const MaxSpans = 32768

// Set returns the indices, each once. It fails, without allocating, if Total exceeds limit or the set could have more than MaxSpans
// parts.
func (a *Array) Set(limit int) (Set, error) {
	if n := a.Total(); n > uint64(max(limit, 0)) {
		return nil, fmt.Errorf("cannot make an array of %d tasks: the limit is %d", n, limit)
	}
	if n := a.spans(); n > MaxSpans {
		return nil, fmt.Errorf("cannot make an array of %d separate ranges and single tasks: the limit is %d", n, MaxSpans)
	}
	return a.Made(), nil
}

// Made is Set for an array whose size was checked when it was stored, such as the tasks of a record.
func (a *Array) Made() Set {
	spans := make([]Span, 0, a.spans())
	for _, r := range a.Ranges {
		if r.Step == 1 {
			spans = append(spans, Span{r.First, r.Last})
			continue
		}
		for t := uint64(r.First); t <= uint64(r.Last); t += uint64(r.Step) {
			spans = append(spans, Span{uint32(t), uint32(t)})
		}
	}
	return normal(spans)
}

// spans is the maximum number of parts in a Set of the array.
func (a *Array) spans() (n uint64) {
	for _, r := range a.Ranges {
		if r.Step == 1 {
			n++
		} else {
			n += r.Count()
		}
	}
	return n
}

// String formats the specification, range by range.
func (a *Array) String() string {
	var b strings.Builder
	for i, r := range a.Ranges {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatUint(uint64(r.First), 10))
		if r.Last > r.First {
			fmt.Fprintf(&b, "-%d", r.Last)
			if r.Step > 1 {
				fmt.Fprintf(&b, ":%d", r.Step)
			}
		}
	}
	if a.Throttle > 0 {
		fmt.Fprintf(&b, "%%%d", a.Throttle)
	}
	return b.String()
}

// FormatTasks writes the tasks of an array with its throttle as scontrol prints ArrayTaskId: "1,3,5,7%1". The tasks are cut to
// limit bytes as in Set.Format.
func FormatTasks(tasks Set, throttle uint32, limit int) string {
	if throttle == 0 {
		return tasks.Format(limit)
	}
	return fmt.Sprintf("%s%%%d", tasks.Format(limit), throttle)
}

// Package jobid reads and writes the names of jobs, array tasks and steps ("12", "12_3", "12_[4-9%2]", "12.batch"), the
// value of --array and that of --dependency.
//
// The grammars are those of squeue(1), scancel(1) and sbatch(1).
package jobid

import (
	"fmt"
	"strconv"
	"strings"
)

// Special step numbers, named as in slurm.h.
const (
	StepInteractive uint32 = 0xfffffffa
	StepBatch       uint32 = 0xfffffffb
	StepExtern      uint32 = 0xfffffffc
	// StepNone means that an ID names no step.
	StepNone uint32 = 0xfffffffe
)

var stepNames = map[uint32]string{StepInteractive: "interactive", StepBatch: "batch", StepExtern: "extern"}

// StepName formats a step number as sacct does: "0", "batch", "extern".
func StepName(step uint32) string {
	if name, ok := stepNames[step]; ok {
		return name
	}
	return strconv.FormatUint(uint64(step), 10)
}

// ID names a job, some of its tasks, or one step.
type ID struct {
	Job uint32
	// Tasks is nil for "12"; {3} for "12_3"; ranges for "12_[4-9%2]".
	Tasks *Array
	// AllTasks is set for "12_*".
	AllTasks bool
	// Het is the component of a heterogeneous job, "12+1"; -1: none.
	Het int
	// Step is StepNone if the ID names no step.
	Step uint32
}

// Job returns the ID of a whole job.
func Job(job uint32) ID { return ID{Job: job, Het: -1, Step: StepNone} }

// Task returns the ID of one task of an array.
func Task(job, task uint32) ID {
	id := Job(job)
	id.Tasks = &Array{Ranges: []Range{{task, task, 1}}}
	return id
}

// Task returns the task that the ID names; false if it names none or several.
func (id ID) Task() (uint32, bool) {
	if id.Tasks == nil || len(id.Tasks.Ranges) != 1 || id.Tasks.Ranges[0].First != id.Tasks.Ranges[0].Last {
		return 0, false
	}
	return id.Tasks.Ranges[0].First, true
}

// String formats the ID as squeue does. Task lists stay in brackets.
func (id ID) String() string {
	var b strings.Builder
	b.WriteString(strconv.FormatUint(uint64(id.Job), 10))
	if t, ok := id.Task(); ok && id.Tasks.Throttle == 0 {
		fmt.Fprintf(&b, "_%d", t)
	} else if id.Tasks != nil {
		fmt.Fprintf(&b, "_[%s]", id.Tasks)
	} else if id.AllTasks {
		b.WriteString("_*")
	}
	if id.Het >= 0 {
		fmt.Fprintf(&b, "+%d", id.Het)
	}
	if id.Step != StepNone {
		b.WriteByte('.')
		b.WriteString(StepName(id.Step))
	}
	return b.String()
}

// Parse reads one ID: N, N_task, N_[tasks], N_*, N+component, each optionally followed by .step, which is a number, batch, extern
// or interactive.
func Parse(s string) (ID, error) {
	fail := func(why string) (ID, error) {
		return ID{}, fmt.Errorf("cannot read job id %.80q: %s; write 12, 12_3, 12_[1-3], 12.0 or 12.batch", s, why)
	}
	if len(s) > maxText {
		return fail("it is too long")
	}
	digits := s[:len(s)-len(strings.TrimLeft(s, "0123456789"))]
	rest := s[len(digits):]
	n, err := index(digits)
	if err != nil || n == 0 {
		return fail("it does not begin with a job number")
	}
	id := Job(n)
	if tasks, ok := strings.CutPrefix(rest, "_"); ok {
		why := ""
		if rest, why = id.readTasks(tasks); why != "" {
			return fail(why)
		}
	}
	if het, ok := strings.CutPrefix(rest, "+"); ok {
		number, _, _ := strings.Cut(het, ".")
		n, err := index(number)
		if err != nil || n > 1<<16 || id.Tasks != nil || id.AllTasks {
			return fail("the component after '+' is not a number")
		}
		id.Het, rest = int(n), het[len(number):]
	}
	if step, ok := strings.CutPrefix(rest, "."); ok {
		if id.Step, ok = readStep(step); !ok {
			return fail(fmt.Sprintf("%.20q is not a step", step))
		}
		rest = ""
	}
	if rest != "" {
		return fail(fmt.Sprintf("%.20q follows it", rest))
	}
	return id, nil
}

// readTasks reads the tasks after "_" and returns the rest of the text.
func (id *ID) readTasks(s string) (rest, why string) {
	switch {
	case strings.HasPrefix(s, "*"):
		id.AllTasks = true
		return s[1:], ""
	case strings.HasPrefix(s, "["):
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return "", "'[' is not closed"
		}
		a, err := ParseArray(s[1:end])
		if err != nil {
			return "", err.Error()
		}
		id.Tasks = a
		return s[end+1:], ""
	}
	digits := s[:len(s)-len(strings.TrimLeft(s, "0123456789"))]
	n, err := index(digits)
	if err != nil {
		return "", "the task after '_' is not a number"
	}
	id.Tasks = &Array{Ranges: []Range{{n, n, 1}}}
	return s[len(digits):], ""
}

func readStep(s string) (uint32, bool) {
	for n, name := range stepNames {
		if strings.EqualFold(s, name) {
			return n, true
		}
	}
	n, err := index(s)
	return n, err == nil && n < StepInteractive
}

// maxIDs bounds the elements of one list.
const maxIDs = 65536

// ParseList reads IDs separated by commas: "12,13_[1,3],14.0". The empty text is an empty list.
func ParseList(s string) ([]ID, error) {
	if len(s) > maxText {
		return nil, fmt.Errorf("cannot read job ids: more than %d bytes", maxText)
	}
	var out []ID
	depth, start := 0, 0
	for i := 0; i <= len(s) && s != ""; i++ {
		if i < len(s) {
			switch s[i] {
			case '[':
				depth++
			case ']':
				depth--
			}
			if s[i] != ',' || depth > 0 {
				continue
			}
		}
		id, err := Parse(s[start:i])
		if err != nil {
			return nil, err
		}
		if out = append(out, id); len(out) > maxIDs {
			return nil, fmt.Errorf("cannot read job ids: more than %d", maxIDs)
		}
		start = i + 1
	}
	return out, nil
}

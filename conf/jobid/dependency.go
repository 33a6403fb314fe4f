package jobid

import (
	"fmt"
	"strconv"
	"strings"
)

// MaxDependencies is the maximum number of conditions of a job. MaxWithCorr is the maximum if aftercorr is among them: the record
// of an array is then split, and each part carries all conditions.
const (
	MaxDependencies = 32768
	MaxWithCorr     = 1024
)

// maxDependency bounds the text of a dependency, in bytes: 32,768 conditions written out.
const maxDependency = 2 << 20

// Kind is a kind of dependency, in Slurm's spelling.
type Kind string

// The kinds of sbatch(1) --dependency.
const (
	After      Kind = "after"      // the other job has started or was cancelled
	AfterAny   Kind = "afterany"   // it has ended
	AfterOK    Kind = "afterok"    // it has ended with exit code 0
	AfterNotOK Kind = "afternotok" // it has ended, but not with exit code 0
	AfterCorr  Kind = "aftercorr"  // the task with the same index has ended with exit code 0
	Singleton  Kind = "singleton"  // no other job of the user has the same name
)

// Condition is one event to wait for. Job is 0 for Singleton.
type Condition struct {
	Kind Kind
	Job  uint32
	// Task is the array task, if HasTask; otherwise the condition is about the whole job.
	Task    uint32
	HasTask bool
	// DelayMin is for After: minutes after the start.
	DelayMin uint32
}

// Dependency is the value of --dependency: all conditions must hold, or with Any one of them. The zero value is no dependency.
type Dependency struct {
	Conditions []Condition
	Any        bool
}

// dependencyForms ends every error about a dependency.
const dependencyForms = "write kind:id[:id…] separated by ',' (all) or '?' (any one), where kind is after, afterany, afterok, " +
	"afternotok or aftercorr; or singleton"

// ParseDependency reads "afterok:1:2,afterany:3_4", "after:5+10", "afterok:1?singleton"; a bare id means afterany. The empty text
// is no dependency. Repeated conditions count once.
func ParseDependency(s string) (Dependency, error) {
	fail := func(why string, args ...any) (Dependency, error) {
		return Dependency{}, fmt.Errorf("cannot read dependency %.80q: %s; %s", s, fmt.Sprintf(why, args...), dependencyForms)
	}
	var d Dependency
	if s == "" {
		return d, nil
	}
	if len(s) > maxDependency {
		return fail("it has more than %d bytes", maxDependency)
	}
	comma, question := separators(s)
	if comma && question {
		return fail("it has both ',' and '?'")
	}
	d.Any = question
	corr, seen := false, map[Condition]bool{}
	for _, part := range splitOutside(s, ",?") {
		conditions, why := parseConditions(part)
		if why != "" {
			return fail("%.40q %s", part, why)
		}
		for _, c := range conditions {
			corr = corr || c.Kind == AfterCorr
			if !seen[c] {
				seen[c] = true
				d.Conditions = append(d.Conditions, c)
			}
			if len(d.Conditions) > MaxDependencies {
				return fail("it has more than %d conditions", MaxDependencies)
			}
		}
	}
	if corr && len(d.Conditions) > MaxWithCorr {
		return fail("it has aftercorr and more than %d conditions", MaxWithCorr)
	}
	return d, nil
}

func separators(s string) (comma, question bool) {
	return len(splitOutside(s, ",")) > 1, strings.Contains(s, "?")
}

// splitOutside splits s at each byte of seps outside brackets.
func splitOutside(s, seps string) []string {
	var out []string
	depth, start := 0, 0
	for i := range len(s) {
		switch {
		case s[i] == '[':
			depth++
		case s[i] == ']':
			depth--
		case depth <= 0 && strings.IndexByte(seps, s[i]) >= 0:
			out = append(out, s[start:i])
			start = i + 1
		}
	}
	return append(out, s[start:])
}

// parseConditions reads one kind with its ids.
func parseConditions(s string) (out []Condition, why string) {
	word, ids, hasIDs := strings.Cut(s, ":")
	kind := Kind(strings.ToLower(word))
	if word != "" && word[0] >= '0' && word[0] <= '9' {
		kind, ids, hasIDs = AfterAny, s, true
	}
	switch kind {
	case Singleton:
		if hasIDs {
			return nil, "names jobs, but singleton has none"
		}
		return []Condition{{Kind: Singleton}}, ""
	case After, AfterAny, AfterOK, AfterNotOK, AfterCorr:
	case "expand", "afterburstbuffer":
		return nil, "is of a kind that is not supported"
	default:
		return nil, "is of an unknown kind"
	}
	for _, id := range splitOutside(ids, ":") {
		more, why := parseCondition(kind, id)
		if why != "" {
			return nil, why
		}
		if out = append(out, more...); len(out) > MaxDependencies {
			return nil, fmt.Sprintf("names more than %d jobs", MaxDependencies)
		}
	}
	return out, ""
}

// parseCondition reads "12", "12_3", "12_[1-3]", "12_*" or "12+30".
func parseCondition(kind Kind, s string) (out []Condition, why string) {
	name, delay, delayed := strings.Cut(s, "+")
	id, err := Parse(name)
	if err != nil || id.Step != StepNone {
		return nil, fmt.Sprintf("has %.20q where a job id belongs", name)
	}
	c := Condition{Kind: kind, Job: id.Job}
	if delayed {
		if kind != After {
			return nil, "has a delay, which only the kind after takes"
		}
		if c.DelayMin, err = index(delay); err != nil {
			return nil, "has a delay that " + err.Error()
		}
	}
	if id.Tasks == nil {
		return []Condition{c}, ""
	}
	tasks, err := id.Tasks.Set(MaxDependencies)
	if err != nil || id.Tasks.Throttle > 0 {
		return nil, fmt.Sprintf("names more than %d tasks, or a throttle", MaxDependencies)
	}
	c.HasTask = true
	for t := range tasks.All() {
		c.Task = t
		out = append(out, c)
	}
	return out, ""
}

// String formats the condition without its state: "afterok:12_3", "after:5+10".
func (c Condition) String() string {
	if c.Kind == Singleton {
		return string(c.Kind)
	}
	b := strconv.AppendUint(append([]byte(c.Kind), ':'), uint64(c.Job), 10)
	if c.HasTask {
		b = strconv.AppendUint(append(b, '_'), uint64(c.Task), 10)
	}
	if c.DelayMin > 0 {
		b = strconv.AppendUint(append(b, '+'), uint64(c.DelayMin), 10)
	}
	return string(b)
}

// String formats the dependency as ParseDependency reads it.
func (d Dependency) String() string {
	return d.Format(Condition.String)
}

// Format formats the dependency, using write for each condition: squeue appends "(unfulfilled)" to each, and "_*" to the id of an
// array.
func (d Dependency) Format(write func(Condition) string) string {
	sep := ","
	if d.Any {
		sep = "?"
	}
	parts := make([]string, len(d.Conditions))
	for i, c := range d.Conditions {
		parts[i] = write(c)
	}
	return strings.Join(parts, sep)
}

package sim

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
)

// Job is one line of a trace.
type Job struct {
	ID     int64 // as in the trace
	Submit int64
	RunS   int64 // at most RequestS: a job is killed at its limit
	Procs  int
	// RequestS is the time limit that the user requested; the run time when the trace has none.
	RequestS int64
	User     string
	Name     string
	Account  string // the group; "" when the trace has none
	QOS      string // the number of the queue; "" when the trace has none
}

// maxLine bounds a line of a trace.
const maxLine = 1 << 16

// ReadSWF reads a trace in the Standard Workload Format, plain or gzipped.
// Jobs without a run time, processors or a time of submission are left out, as
// the archive's own tools do, and counted. The result is in order of
// submission, then id.
func ReadSWF(path string) (jobs []Job, left int, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, fmt.Errorf("cannot read trace: %w", err)
	}
	defer f.Close()
	r, err := unzipped(f)
	if err == nil {
		jobs, left, err = ParseSWF(r)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("cannot read trace %s: %w", path, err)
	}
	return jobs, left, nil
}

// Fitting leaves out the jobs that a machine of procs processors can never run, and counts them.
func Fitting(jobs []Job, procs int) (fit []Job, left int) {
	fit = slices.DeleteFunc(slices.Clone(jobs), func(j Job) bool { return j.Procs > procs })
	return fit, len(jobs) - len(fit)
}

// unzipped checks the first bytes, not the name.
func unzipped(r io.Reader) (io.Reader, error) {
	b := bufio.NewReader(r)
	if head, _ := b.Peek(2); bytes.Equal(head, []byte{0x1f, 0x8b}) {
		return gzip.NewReader(b)
	}
	return b, nil
}

// ParseSWF is ReadSWF for an open trace.
func ParseSWF(r io.Reader) (jobs []Job, left int, err error) {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 4096), maxLine)
	for line := 1; sc.Scan(); line++ {
		text := bytes.TrimSpace(sc.Bytes())
		if len(text) == 0 || text[0] == ';' {
			continue
		}
		j, ok, err := parseJob(text)
		switch {
		case err != nil && !sc.Scan() && sc.Err() != nil: // the file was truncated
			return nil, 0, fmt.Errorf("after line %d: %w", line-1, sc.Err())
		case err != nil:
			return nil, 0, fmt.Errorf("line %d: %w", line, err)
		case ok:
			jobs = append(jobs, j)
		default:
			left++
		}
	}
	if err := sc.Err(); err != nil {
		return nil, 0, err
	}
	slices.SortStableFunc(jobs, func(a, b Job) int { return cmp.Or(cmp.Compare(a.Submit, b.Submit), cmp.Compare(a.ID, b.ID)) })
	return jobs, left, nil
}

// Fields of a line, counted from 0: Feitelson, The Standard Workload Format.
const (
	fieldID = iota
	fieldSubmit
	fieldWait
	fieldRun
	fieldProcs
	fieldCPU
	fieldMem
	fieldReqProcs
	fieldReqTime
	fieldReqMem
	fieldStatus
	fieldUser
	fieldGroup
	fieldApp
	fieldQueue
	leastFields = fieldReqTime + 1
)

// maxValue keeps sums of times within an int64.
const maxValue = 1 << 40

func parseJob(text []byte) (Job, bool, error) {
	words := bytes.Fields(text)
	if len(words) < leastFields {
		return Job{}, false, fmt.Errorf("%d fields, at least %d are needed", len(words), leastFields)
	}
	var v [18]int64
	for i := range v {
		if v[i] = -1; i >= len(words) {
			continue
		}
		x, err := strconv.ParseFloat(string(words[i]), 64)
		if err != nil || x != x || x > maxValue || x < -maxValue {
			return Job{}, false, fmt.Errorf("field %d is %q, not a number of at most %d", i+1, words[i], int64(maxValue))
		}
		v[i] = int64(x)
	}
	j := Job{ID: v[fieldID], Submit: v[fieldSubmit], RunS: v[fieldRun], RequestS: v[fieldReqTime]}
	procs := v[fieldReqProcs]
	if procs <= 0 {
		procs = v[fieldProcs]
	}
	if j.RunS <= 0 || procs <= 0 || procs > 1<<30 || j.Submit < 0 {
		return Job{}, false, nil
	}
	j.Procs = int(procs)
	if j.RequestS <= 0 {
		j.RequestS = j.RunS
	}
	j.RunS = min(j.RunS, j.RequestS)
	j.User, j.Name = who(v[fieldUser], v[fieldQueue]), ""
	if v[fieldApp] > 0 {
		j.Name = strconv.FormatInt(v[fieldApp], 10)
	}
	j.Account, j.QOS = number(v[fieldGroup]), number(v[fieldQueue])
	return j, true, nil
}

// number formats a trace's group or queue; "" when unknown.
func number(n int64) string {
	if n < 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// who returns the user, or the queue where users are unknown.
func who(user, queue int64) string {
	if user < 0 {
		return "q" + strconv.FormatInt(queue, 10)
	}
	return strconv.FormatInt(user, 10)
}

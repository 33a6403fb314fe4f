package srun

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/client/stepio"
	"github.com/sluice-hpc/sluice/conf/filename"
	"github.com/sluice-hpc/sluice/proto/stepwire"
)

// stream is the source or target of one of the tasks' three streams.
type stream struct {
	pattern string // the option's value; "" = srun's own stream
	node    bool   // the nodes open the files, because names differ by task or node
	only    int64  // the only task connected to it; -1 = all
	file    *os.File
}

// files has the three streams.
type files struct {
	in, out, err stream
	errToOut     bool // without --error, stderr goes to the same place as stdout
}

// plan evaluates the options. It opens the input at once, to report an unreadable file before anything runs.
func (f *files) plan(r *run) error {
	spec := r.req.Spec
	f.in, f.out, f.err = classify(spec.StdIn), classify(spec.StdOut), classify(spec.StdErr)
	f.errToOut = spec.StdErr == "" && spec.StdOut != ""
	if f.in.pattern != "" && !f.in.node && !symbols(f.in.pattern) {
		file, err := os.Open(absolute(r.req.Dir, f.in.pattern))
		if err != nil {
			return &opt.ValueError{Lines: []string{"Could not open stdin file: " + reason(err)}, Exit: 1, Hint: err.Error()}
		}
		f.in.file = file
	}
	return nil
}

// classify reads an option: none, all, a task number, or a file.
func classify(pattern string) stream {
	s := stream{pattern: pattern, only: -1}
	switch {
	case strings.EqualFold(pattern, "all"):
		s.pattern = ""
	case pattern == "":
	default:
		if n, err := strconv.ParseUint(pattern, 10, 31); err == nil {
			s.pattern, s.only = "", int64(n)
			return s
		}
		s.node = perTask(pattern)
	}
	return s
}

// perTask reports whether a pattern has symbols that differ by task or node.
func perTask(pattern string) bool {
	if strings.ContainsRune(pattern, '\\') {
		return false
	}
	for i := 0; i < len(pattern)-1; i++ {
		if pattern[i] != '%' {
			continue
		}
		for i++; i < len(pattern)-1 && pattern[i] >= '0' && pattern[i] <= '9'; i++ {
		}
		if pattern[i] == 't' || pattern[i] == 'n' || pattern[i] == 'N' {
			return true
		}
	}
	return false
}

func symbols(pattern string) bool { return strings.Contains(pattern, "%") }

func absolute(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// reason is the system's text for an error.
func reason(err error) string {
	var p *os.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	text := err.Error()
	return strings.ToUpper(text[:1]) + text[1:]
}

// open opens the files that srun itself writes, once the step's number is known.
func (f *files) open(r *run) error {
	values := r.values()
	for _, s := range []*stream{&f.out, &f.err} {
		if s.pattern == "" || s.node {
			continue
		}
		flags := os.O_WRONLY | os.O_CREATE
		if r.req.Spec.OpenMode == msg.OpenAppend || r.req.Spec.OpenMode == 0 && r.conf.fileAppend {
			flags |= os.O_APPEND
		} else {
			flags |= os.O_TRUNC
		}
		path := absolute(r.req.Dir, filename.Expand(s.pattern, values))
		file, err := os.OpenFile(path, flags, 0o666)
		if err != nil {
			which := "stdout"
			if s == &f.err {
				which = "stderr"
			}
			return &opt.ValueError{Lines: []string{"Could not open " + which + " file: " + reason(err)}, Exit: 1, Hint: err.Error()}
		}
		s.file = file
	}
	if f.out.file != nil && f.err.file != nil && same(f.out.file, f.err.file) { // two open files would overwrite each other's data
		_ = f.err.file.Close()
		f.err.file = f.out.file
	}
	if f.in.pattern != "" && !f.in.node && f.in.file == nil {
		file, err := os.Open(absolute(r.req.Dir, filename.Expand(f.in.pattern, values)))
		if err != nil {
			return &opt.ValueError{Lines: []string{"Could not open stdin file: " + reason(err)}, Exit: 1, Hint: err.Error()}
		}
		f.in.file = file
	}
	return nil
}

func same(a, b *os.File) bool {
	sa, err := a.Stat()
	sb, err2 := b.Stat()
	return err == nil && err2 == nil && os.SameFile(sa, sb)
}

func (f *files) close() {
	for _, s := range []*stream{&f.in, &f.out, &f.err} {
		if s.file != nil {
			_ = s.file.Close()
		}
	}
}

// values returns the values of file name symbols, except those of tasks and nodes.
func (r *run) values() filename.Values {
	spec := r.job.GetSpec()
	return filename.Values{JobID: r.job.GetId(), IsArrayTask: r.job.GetIsArrayTask(), ArrayJobID: r.job.GetArrayJobId(),
		ArrayTaskID: r.job.GetArrayTaskId(), Step: strconv.Itoa(int(r.step.GetStepId())), JobName: spec.GetName(), User: spec.GetUser(),
		Host: r.env.Getenv("SLURMD_NODENAME")}
}

// output returns the writer of the tasks' output.
func (f *files) output(r *run) *stepio.Output {
	tasks := r.step.GetNumTasks()
	direct := r.req.Run.Unbuffered || r.req.Run.Pty
	sink := func(s *stream, own io.Writer) *stepio.Sink {
		switch {
		case s.node:
			return nil
		case s.file != nil:
			own = s.file
		}
		return stepio.NewSink(own, tasks, s.only, r.req.Run.Label, direct)
	}
	out := sink(&f.out, r.env.Stdout)
	if f.errToOut {
		if f.out.only >= 0 || f.out.pattern == "" {
			return stepio.NewOutput(out, sink(&stream{only: f.out.only}, r.env.Stderr))
		}
		return stepio.NewOutput(out, out)
	}
	if f.err.file != nil && f.err.file == f.out.file {
		return stepio.NewOutput(out, out)
	}
	return stepio.NewOutput(out, sink(&f.err, r.env.Stderr))
}

// tell fills in the streams for the nodes.
func (f *files) tell(r *run, w *msg.StepWork) {
	dir := r.req.Spec.WorkDir
	if f.in.node {
		w.StdIn = absolute(dir, f.in.pattern)
	}
	if f.out.node {
		w.StdOut = absolute(dir, f.out.pattern)
	}
	if f.err.node {
		w.StdErr = absolute(dir, f.err.pattern)
	} else if f.errToOut && f.out.node {
		w.StdErr = w.StdOut
	}
	w.InTask = stepwire.All
	switch {
	case f.in.pattern == filename.Null:
		w.InTask = stepwire.None
	case f.in.only >= 0:
		w.InTask = uint32(f.in.only)
	}
}

// source returns the reader for standard input; nil if no task wants any.
func (f *files) source(r *run) io.Reader {
	switch {
	case f.in.node, f.in.pattern == filename.Null:
		return nil
	case f.in.file != nil:
		return f.in.file
	}
	return r.env.Stdin
}

// onlyTasks checks the task numbers of --input, --output and --error.
func (f *files) onlyTasks(tasks uint32) error {
	for what, s := range map[string]*stream{"input": &f.in, "output": &f.out, "error": &f.err} {
		if s.only >= int64(tasks) {
			return fmt.Errorf("--%s=%d: the step has tasks 0 to %d", what, s.only, tasks-1)
		}
	}
	return nil
}

package stepio

import (
	"bytes"
	"io"
	"strconv"
	"sync"
	"time"
)

const (
	// heldBytes is how much of an incomplete line is held back, so that lines of different tasks do not mix; heldFor is for how
	// long, because a prompt has no line end.
	heldBytes = 8 << 10
	heldFor   = 50 * time.Millisecond
)

// Output is the destination of the tasks' output: one sink for stdout and one for stderr, which may be the same.
type Output struct {
	stdout, stderr *Sink
}

// NewOutput returns an Output. A nil sink discards its stream.
func NewOutput(stdout, stderr *Sink) *Output { return &Output{stdout, stderr} }

func (o *Output) sink(stderr bool) *Sink {
	if stderr {
		return o.stderr
	}
	return o.stdout
}

// Write prints output of a task.
func (o *Output) Write(task uint32, stderr bool, b []byte) error {
	s := o.sink(stderr)
	if s == nil {
		return nil
	}
	return s.write(key{task, stderr}, b)
}

// End prints the rest of a task's last line.
func (o *Output) End(task uint32, stderr bool) error {
	s := o.sink(stderr)
	if s == nil {
		return nil
	}
	return s.end(key{task, stderr})
}

// Flush prints the rest of all lines.
func (o *Output) Flush() error {
	var first error
	for _, s := range []*Sink{o.stdout, o.stderr} {
		if s != nil {
			if err := s.flushAll(); first == nil {
				first = err
			}
		}
	}
	return first
}

type key struct {
	task   uint32
	stderr bool
}

// Sink is a file, or the terminal, shared by tasks.
type Sink struct {
	w      io.Writer
	only   int64 // the only task to print; -1 = all
	label  bool
	width  int
	direct bool // nothing is held back: there is one task, or -u was given

	mu    sync.Mutex
	held  map[key][]byte
	open  *key // task with an unfinished line on the output; only with labels
	timer *time.Timer
	armed bool
	err   error // the first write error; later output is dropped
	line  []byte
}

// NewSink returns a Sink. tasks is the number of tasks, only the rank of the one task to print, or -1.
func NewSink(w io.Writer, tasks uint32, only int64, label, unbuffered bool) *Sink {
	return &Sink{w: w, only: only, label: label, width: len(strconv.Itoa(int(max(tasks, 1)) - 1)), direct: tasks <= 1 || unbuffered,
		held: map[key][]byte{}}
}

func (s *Sink) wants(k key) bool { return s.only < 0 || int64(k.task) == s.only }

func (s *Sink) put(b []byte) {
	if s.err != nil || len(b) == 0 {
		return
	}
	_, s.err = s.w.Write(b)
}

func (s *Sink) write(k key, b []byte) error {
	if !s.wants(k) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.direct && !s.label {
		s.put(b)
		return s.err
	}
	end := bytes.LastIndexByte(b, '\n') + 1
	if end > 0 {
		s.lines(k, s.held[k], b[:end])
		delete(s.held, k)
		b = b[end:]
	}
	if len(b) == 0 {
		return s.err
	}
	if len(s.held[k])+len(b) > heldBytes || s.direct {
		s.begin(k, joined(s.held[k], b))
		delete(s.held, k)
		return s.err
	}
	s.held[k] = append(s.held[k], b...)
	s.arm()
	return s.err
}

// joined appends b to the text held back; it copies only if there is some.
func joined(held, b []byte) []byte {
	if len(held) == 0 {
		return b
	}
	return append(held, b...)
}

// lines prints complete lines of a task. head is the beginning of the first one.
func (s *Sink) lines(k key, head, b []byte) {
	if !s.label {
		s.put(joined(head, b))
		return
	}
	s.line = s.line[:0]
	first := append(head, b[:bytes.IndexByte(b, '\n')+1]...)
	s.line = s.labelled(s.line, k, first)
	for b = b[bytes.IndexByte(b, '\n')+1:]; len(b) > 0; {
		n := bytes.IndexByte(b, '\n') + 1
		s.line = s.labelled(s.line, k, b[:n])
		b = b[n:]
	}
	s.put(s.line)
	s.open = nil
}

// begin prints an incomplete line.
func (s *Sink) begin(k key, b []byte) {
	if !s.label {
		s.put(b)
		return
	}
	s.line = s.labelled(s.line[:0], k, b)
	s.put(s.line)
	if len(b) > 0 {
		s.open = &k
	}
}

// labelled appends a line or a part of one, with a label. It first ends an unfinished line of another task.
func (s *Sink) labelled(to []byte, k key, b []byte) []byte {
	goesOn := s.open != nil && *s.open == k
	if s.open != nil && !goesOn {
		to = append(to, '\n')
	}
	s.open = nil
	if !goesOn {
		n := strconv.Itoa(int(k.task))
		for range s.width - len(n) {
			to = append(to, ' ')
		}
		to = append(append(to, n...), ": "...)
	}
	return append(to, b...)
}

// end prints the rest of a stream.
func (s *Sink) end(k key) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finish(k)
	return s.err
}

func (s *Sink) finish(k key) {
	if b := s.held[k]; len(b) > 0 {
		s.begin(k, b)
		delete(s.held, k)
	}
	if s.open != nil && *s.open == k {
		s.put([]byte{'\n'})
		s.open = nil
	}
}

func (s *Sink) flushAll() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.held {
		s.finish(k)
	}
	if s.open != nil {
		s.finish(*s.open)
	}
	return s.err
}

// arm schedules printing of incomplete lines after heldFor. With labels they wait for the end of the line.
func (s *Sink) arm() {
	if s.label || s.armed {
		return
	}
	s.armed = true
	if s.timer == nil {
		s.timer = time.AfterFunc(heldFor, s.prompts)
		return
	}
	s.timer.Reset(heldFor)
}

func (s *Sink) prompts() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = false
	if len(s.held) > 1 { // several tasks have incomplete lines: wait for the ends
		return
	}
	for k, b := range s.held {
		s.put(b)
		delete(s.held, k)
	}
}

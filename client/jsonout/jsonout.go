// Package jsonout writes the documents of --json and --yaml: Slurm's data_parser v0.0.42, whose names and shapes tools parse.
//
// A document is written as it comes, member by member, without a tree of it in memory: 10,000 jobs are a hundred megabytes of
// it. JSON looks as Slurm's does (two blanks a level, an empty list on two lines, "/" escaped), or takes no blanks at all when
// SLURM_JSON says compact; YAML is version 1.1 in block style. encoding/json is not used: it would cost every command its set-up,
// and reflection five times the time of the appends here.
//
// Texts are whatever users made of them. Here they are always valid: broken UTF-8 becomes U+FFFD, control characters and the
// marks that change the direction of writing become \u escapes, so that neither a parser nor a terminal is upset.
package jsonout

import (
	"io"
	"math"
	"strconv"
)

// Parser is the shape of the documents.
const Parser = "data_parser/v0.0.42"

// flushBytes is how much is gathered before it is written.
const flushBytes = 64 << 10

// Writer writes one document. Make it with New; its methods must be called so that the document is well formed: a key within an
// object, none ("") within a list. Errors of the destination are kept and returned by Close.
type Writer struct {
	out     io.Writer
	b       []byte
	yaml    bool
	compact bool
	open    []frame
	wrote   bool // something has reached out
	err     error
}

// frame is an object or list that is not yet closed.
type frame struct {
	list  bool
	empty bool
}

// New begins a document, which is an object. compact leaves out all blanks of JSON; it means nothing to YAML.
func New(out io.Writer, yaml, compact bool) *Writer {
	w := &Writer{out: out, b: make([]byte, 0, flushBytes+(16<<10)), yaml: yaml, compact: compact && !yaml}
	if yaml {
		w.b = append(w.b, "%YAML 1.1\n---\n"...)
	} else {
		w.b = append(w.b, '{')
	}
	w.open = append(w.open, frame{empty: true})
	return w
}

// Started reports whether a part of the document has reached its destination, so that it can no longer be taken back.
func (w *Writer) Started() bool { return w.wrote }

// Close ends the document and writes what is left of it.
func (w *Writer) Close() error {
	for len(w.open) > 1 {
		w.End()
	}
	switch {
	case w.yaml && w.open[0].empty:
		w.b = append(w.b, "{}\n...\n"...)
	case w.yaml:
		w.b = append(w.b, "...\n"...)
	default:
		w.open = w.open[:0]
		w.newline()
		w.b = append(w.b, "}\n"...)
	}
	w.flush()
	return w.err
}

func (w *Writer) flush() {
	if w.err == nil && len(w.b) > 0 {
		w.wrote = true
		_, w.err = w.out.Write(w.b)
	}
	w.b = w.b[:0]
}

// Object begins an object; End ends it.
func (w *Writer) Object(key string) { w.begin(key, false) }

// List begins a list; End ends it.
func (w *Writer) List(key string) { w.begin(key, true) }

func (w *Writer) begin(key string, list bool) {
	w.lead(key)
	if !w.yaml {
		w.b = append(w.b, "{["[btoi(list)])
	}
	w.open = append(w.open, frame{list: list, empty: true})
}

// End ends the innermost object or list.
func (w *Writer) End() {
	last := w.open[len(w.open)-1]
	w.open = w.open[:len(w.open)-1]
	if !w.yaml {
		w.newline()
		w.b = append(w.b, "}]"[btoi(last.list)])
	} else if last.empty {
		w.b = append(w.b, [...]string{" {}\n", " []\n"}[btoi(last.list)]...)
	}
	if len(w.b) >= flushBytes {
		w.flush()
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// newline begins a line at the present depth.
func (w *Writer) newline() {
	if w.compact {
		return
	}
	w.b = append(w.b, '\n')
	w.b = append(w.b, spaces(2*len(w.open))...)
}

const blanks = "                                                                "

func spaces(n int) string { return blanks[:min(n, len(blanks))] }

// lead writes what stands before a value: comma, indentation and key.
func (w *Writer) lead(key string) {
	top := &w.open[len(w.open)-1]
	if w.yaml {
		w.leadYAML(top, key)
		top.empty = false
		return
	}
	if !top.empty {
		w.b = append(w.b, ',')
	}
	top.empty = false
	w.newline()
	if top.list {
		return
	}
	w.b = appendJSON(w.b, key)
	if w.compact {
		w.b = append(w.b, ':')
	} else {
		w.b = append(w.b, ": "...)
	}
}

// leadYAML: a member of an object stands on a line of its own, except the first of an object in a list, which stands behind
// the dash; an element of a list stands behind a dash at the depth of the list's key.
func (w *Writer) leadYAML(top *frame, key string) {
	depth := len(w.open) - 1
	inItem := depth > 0 && !top.list && w.open[depth-1].list
	switch {
	case top.list:
		if top.empty {
			w.b = append(w.b, '\n')
		}
		w.b = append(w.b, spaces(w.indent(depth)-2)...)
		w.b = append(w.b, '-')
		return
	case top.empty && inItem:
		w.b = append(w.b, ' ')
	case top.empty && depth > 0:
		w.b = append(w.b, '\n')
		w.b = append(w.b, spaces(w.indent(depth))...)
	default:
		w.b = append(w.b, spaces(w.indent(depth))...)
	}
	w.b = append(append(w.b, key...), ':')
}

// indent is the column at which the members of the frame at depth stand. A list does not indent what is in it, its dash does.
func (w *Writer) indent(depth int) int {
	n := 0
	for i := 1; i <= depth; i++ {
		switch parentIsList := w.open[i-1].list; {
		case w.open[i].list && !parentIsList:
			n += 2
		case w.open[i].list:
			n += 2
		case parentIsList:
		default:
			n += 2
		}
	}
	return n
}

// value appends one scalar that needs no quotes.
func (w *Writer) scalar(key string, text func(b []byte) []byte) {
	w.lead(key)
	if w.yaml {
		w.b = append(w.b, ' ')
	}
	w.b = text(w.b)
	if w.yaml {
		w.b = append(w.b, '\n')
	}
}

// Str writes a text.
func (w *Writer) Str(key, s string) {
	w.lead(key)
	if w.yaml {
		w.b = append(appendYAML(append(w.b, ' '), s), '\n')
		return
	}
	w.b = appendJSON(w.b, s)
}

// Int writes a whole number.
func (w *Writer) Int(key string, n int64) {
	w.scalar(key, func(b []byte) []byte { return strconv.AppendInt(b, n, 10) })
}

// Bool writes true or false.
func (w *Writer) Bool(key string, v bool) {
	w.scalar(key, func(b []byte) []byte { return strconv.AppendBool(b, v) })
}

// Null writes that there is nothing.
func (w *Writer) Null(key string) {
	w.scalar(key, func(b []byte) []byte { return append(b, "null"...) })
}

// Float writes a number with a fraction, at least ".0"; what is not finite is 0, which JSON has no other word for.
func (w *Writer) Float(key string, f float64) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		f = 0
	}
	w.scalar(key, func(b []byte) []byte {
		if f == math.Trunc(f) && math.Abs(f) < 1e15 {
			return strconv.AppendFloat(b, f, 'f', 1, 64)
		}
		return strconv.AppendFloat(b, f, 'g', -1, 64)
	})
}

// Number writes Slurm's number that may be unset or unlimited: {"set":true,"infinite":false,"number":N}.
func (w *Writer) Number(key string, n uint64) { w.noVal(key, true, false, n) }

// Unset writes that there is no number.
func (w *Writer) Unset(key string) { w.noVal(key, false, false, 0) }

// Infinite writes that there is no limit.
func (w *Writer) Infinite(key string) { w.noVal(key, false, true, 0) }

// Limit writes n, or that there is no limit when unlimited.
func (w *Writer) Limit(key string, n uint64, unlimited bool) { w.noVal(key, !unlimited, unlimited, n) }

// Optional writes n, or that it is not set when it is 0.
func (w *Writer) Optional(key string, n uint64) { w.noVal(key, n != 0, false, n) }

// Seconds writes a moment as seconds since 1970; no moment is a 0 that is set, as Slurm has it.
func (w *Writer) Seconds(key string, ns int64) { w.Number(key, uint64(max(ns/1e9, 0))) }

func (w *Writer) noVal(key string, set, infinite bool, n uint64) {
	if !set {
		n = 0
	}
	w.Object(key)
	w.Bool("set", set)
	w.Bool("infinite", infinite)
	w.scalar("number", func(b []byte) []byte { return strconv.AppendUint(b, n, 10) })
	w.End()
}

// FloatNumber is Number for one with a fraction.
func (w *Writer) FloatNumber(key string, set bool, f float64) {
	w.Object(key)
	w.Bool("set", set)
	w.Bool("infinite", false)
	w.Float("number", f)
	w.End()
}

// Strs writes a list of texts.
func (w *Writer) Strs(key string, list ...string) {
	w.List(key)
	for _, s := range list {
		w.Str("", s)
	}
	w.End()
}

// Package jsonout writes the documents of --json and --yaml: Slurm's data_parser v0.0.42, whose names and shapes tools parse.
//
// A document is written as a stream, member by member, without a tree in memory: 10,000 jobs would take a hundred megabytes. JSON
// looks like Slurm's (two blanks per level, an empty list on two lines, "/" escaped), or has no blanks if SLURM_JSON says compact;
// YAML is version 1.1 in block style. encoding/json is not used: its initialisation would cost every command time, and reflection
// takes five times as long as the appends here.
//
// Texts are arbitrary user input. The output is always valid: broken UTF-8 becomes U+FFFD, control characters and marks that change
// the direction of writing become \u escapes, so that neither a parser nor a terminal is upset.
package jsonout

import (
	"io"
	"math"
	"strconv"
)

// Parser is the shape of the documents.
const Parser = "data_parser/v0.0.42"

// flushBytes is how much is buffered before a write.
const flushBytes = 64 << 10

// Writer writes one document. Create it with New; call its methods such that the document is well formed: with a key within an
// object, without one ("") within a list. Errors of the destination are kept and returned by Close.
type Writer struct {
	out     io.Writer
	b       []byte
	yaml    bool
	compact bool
	open    []frame
	wrote   bool // some output has been written
	err     error
}

// frame is an object or list that is not yet closed.
type frame struct {
	list  bool
	empty bool
}

// New begins a document, which is an object. compact omits all blanks of JSON; it has no effect on YAML.
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

// Started reports whether a part of the document has been written to the destination, so that it cannot be withdrawn.
func (w *Writer) Started() bool { return w.wrote }

// Close ends the document and writes the rest.
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

// lead writes the text before a value: comma, indentation and key.
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

// leadYAML writes the text before a value: a member of an object is on a line of its own, except the first member of an object in a
// list, which follows the dash; an element of a list follows a dash at the depth of the list's key.
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

// indent is the column of the members of the frame at depth. A list does not indent its elements, the dash does.
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

// scalar appends one value that needs no quotes.
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

// Null writes null.
func (w *Writer) Null(key string) {
	w.scalar(key, func(b []byte) []byte { return append(b, "null"...) })
}

// Float writes a number with a fraction, at least ".0"; values that are not finite become 0, because JSON cannot represent them.
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

// Unset writes an unset number.
func (w *Writer) Unset(key string) { w.noVal(key, false, false, 0) }

// Infinite writes an unlimited number.
func (w *Writer) Infinite(key string) { w.noVal(key, false, true, 0) }

// Limit writes n, or an unlimited number.
func (w *Writer) Limit(key string, n uint64, unlimited bool) { w.noVal(key, !unlimited, unlimited, n) }

// Optional writes n, or an unset number if it is 0.
func (w *Writer) Optional(key string, n uint64) { w.noVal(key, n != 0, false, n) }

// Seconds writes a moment as seconds since 1970; no moment is written as 0 and set, as in Slurm.
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

// FloatNumber is Number with a fraction.
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

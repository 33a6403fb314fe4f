// Package format turns records into the text of squeue, sinfo and scontrol show.
//
// Each kind of row has one table of fields (jobs in jobfields.go, groups of nodes in nodefields.go, steps in stepfields.go): a
// letter for -o, names for -O, a header, and a function from record to text. A Layout is what -o or -O asked for: fields with
// widths and the text between them. The rules of width and parsing are those of squeue(1), "--format" and "--Format", and of
// what Slurm 22.05 answers (client/cli/testdata). scontrol's blocks are in *record.go.
//
// Records hold names that users chose, so everything that comes from one passes through Escape: no column count, terminal or
// reader of lines can be upset by a name.
package format

import (
	"time"
	"unicode/utf8"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/terminal"
)

// Escape is terminal.Escape, for what a record says.
func Escape(s string) string { return terminal.Escape(s) }

// Context is what the text of a field depends on besides its record.
type Context struct {
	Now        time.Time      // the controller's clock when it answered
	Loc        *time.Location // nil: local time
	TimeFormat string         // SLURM_TIME_FORMAT
	NoConvert  bool           // --noconvert: 2048M stays 2048M
	Expand     bool           // --expand-patterns: files as they will be called, not as they were asked for
	BitstrLen  int            // SLURM_BITSTR_LEN: bytes of an array expression, 0 no limit
	Cluster    string
	Nodes      map[string]*msg.NodeRecord // by name, where a document says what of a node a job has; nil = not known
	// UserName and GroupName name ids that the record leaves without a name; nil prints the number.
	UserName  func(uid uint32) string
	GroupName func(gid uint32) string
}

// DefaultBitstrLen is the limit on array expressions when SLURM_BITSTR_LEN is not set (squeue(1), ENVIRONMENT).
const DefaultBitstrLen = 64

func (c *Context) location() *time.Location {
	if c.Loc == nil {
		return time.Local
	}
	return c.Loc
}

// Field is one thing that can be shown of a row of type T.
type Field[T any] struct {
	Letter byte     // of -o, 0 if it has none
	Names  []string // of -O, in lower case
	Header string
	// Text appends the field to b. It need not escape.
	Text func(b []byte, c *Context, row T) []byte
	// Key appends what --sort compares, as bytes (order.go); nil sorts by the text.
	Key func(b []byte, c *Context, row T) []byte
	// Config is the place in slurm.conf, for fields that can be sorted by it ("#P").
	Config func(row T) int64
	// NoSort: --sort refuses the letter, as Slurm does.
	NoSort bool
	// Whole: a duration, which Slurm never cuts in a column that is aligned to the right.
	Whole bool
	// Marked: a '*' at the end outlives the cut (sinfo's default partition).
	Marked bool
	// Fold says how sinfo groups nodes that differ in the field.
	Fold Fold
}

// Column is a field with its place in a row. A Column without a field is literal text in Suffix.
type Column[T any] struct {
	Field  *Field[T]
	Width  int // bytes; 0 = as wide as the text, never cut
	Right  bool
	Suffix string
	Auto   bool // sinfo's '#': at least Width, wider when a row needs it (Fit)
}

// Layout is a parsed format.
type Layout[T any] []Column[T]

// AppendHeader appends the line of headers, without the newline.
func (l Layout[T]) AppendHeader(b []byte) []byte {
	for i := range l {
		col := &l[i]
		start := len(b)
		if col.Field != nil {
			b = append(b, col.Field.Header...)
			b = fit(b, start, col.Width, col.Right)
		}
		b = append(b, col.Suffix...)
	}
	return b
}

// AppendRow appends one row, without the newline.
func (l Layout[T]) AppendRow(b []byte, c *Context, row T) []byte {
	for i := range l {
		col := &l[i]
		if col.Field != nil {
			start := len(b)
			b = col.Field.Text(b, c, row)
			b = terminal.EscapeTail(b, start)
			width := col.Width
			if col.Right && col.Field.Whole {
				width = max(width, len(b)-start)
			}
			marked := col.Field.Marked && len(b) > start && b[len(b)-1] == '*' && len(b)-start > width
			b = fit(b, start, width*min(col.Width, 1), col.Right)
			if marked && col.Width > 0 {
				b[len(b)-1] = '*'
			}
		}
		b = append(b, col.Suffix...)
	}
	return b
}

// Fit widens the Auto columns to what the rows need.
func (l Layout[T]) Fit(c *Context, rows []T) {
	var b []byte
	for i := range l {
		if !l[i].Auto {
			continue
		}
		for _, row := range rows {
			b = terminal.EscapeTail(l[i].Field.Text(b[:0], c, row), 0)
			l[i].Width = max(l[i].Width, len(b))
		}
	}
}

// fit cuts or pads b[start:] to width bytes, which is how Slurm counts. A rune is never cut in two: blanks take its place.
func fit(b []byte, start, width int, right bool) []byte {
	if width <= 0 {
		return b
	}
	n := len(b) - start
	if n > width {
		cut := start + width
		for cut > start && !utf8.RuneStart(b[cut]) {
			cut--
		}
		b = b[:cut]
		n = cut - start
	}
	pad := width - n
	if pad == 0 {
		return b
	}
	for range pad {
		b = append(b, ' ')
	}
	if right {
		copy(b[start+pad:], b[start:start+n])
		for i := range pad {
			b[start+i] = ' '
		}
	}
	return b
}

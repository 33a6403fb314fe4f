// Package format turns records into the text of squeue, sinfo and scontrol show.
//
// Each kind of row has one table of fields (jobs in jobfields.go, groups of nodes in nodefields.go, steps in stepfields.go): a
// letter for -o, names for -O, a header, and a function from record to text. A Layout is a parsed -o or -O: fields with widths and
// the text between them. The rules of width and parsing are those of squeue(1), "--format" and "--Format", and of Slurm 22.05's
// output (client/cli/testdata). scontrol's blocks are in *record.go.
//
// Records hold names that users chose, so every text from a record passes through Escape: a name cannot upset column counts,
// terminals or line-based readers.
package format

import (
	"time"
	"unicode/utf8"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/terminal"
)

// Escape is terminal.Escape, for texts from records.
func Escape(s string) string { return terminal.Escape(s) }

// Context is the input of a field's text in addition to the record.
type Context struct {
	Now        time.Time      // the controller's clock when it answered
	Loc        *time.Location // nil: local time
	TimeFormat string         // SLURM_TIME_FORMAT
	NoConvert  bool           // --noconvert: 2048M stays 2048M
	Expand     bool           // --expand-patterns: file names with their symbols expanded
	BitstrLen  int            // SLURM_BITSTR_LEN: bytes of an array expression, 0 no limit
	Cluster    string
	Nodes      map[string]*msg.NodeRecord // by name, for documents that show a job's share of a node; nil = unknown
	// UserName and GroupName name ids for which the record has no name; nil prints the number.
	UserName  func(uid uint32) string
	GroupName func(gid uint32) string
}

// DefaultBitstrLen is the limit on array expressions if SLURM_BITSTR_LEN is not set (squeue(1), ENVIRONMENT).
const DefaultBitstrLen = 64

func (c *Context) location() *time.Location {
	if c.Loc == nil {
		return time.Local
	}
	return c.Loc
}

// Field is one value to show of a row of type T.
type Field[T any] struct {
	Letter byte     // for -o, 0 if it has none
	Names  []string // for -O, in lower case
	Header string
	// Text appends the field to b. It need not escape.
	Text func(b []byte, c *Context, row T) []byte
	// Key appends the bytes by which --sort compares (order.go); nil sorts by the text.
	Key func(b []byte, c *Context, row T) []byte
	// Config is the position in slurm.conf, for fields that can be sorted by it ("#P").
	Config func(row T) int64
	// NoSort: --sort rejects the letter, as in Slurm.
	NoSort bool
	// Whole: a duration, which Slurm never cuts in a right-aligned column.
	Whole bool
	// Marked: a '*' at the end survives cutting (sinfo's default partition).
	Marked bool
	// Fold is how sinfo groups nodes that differ in the field.
	Fold Fold
}

// Column is a field in a row. A Column without a field is literal text in Suffix.
type Column[T any] struct {
	Field  *Field[T]
	Width  int // bytes; 0 = the width of the text, never cut
	Right  bool
	Suffix string
	Auto   bool // sinfo's '#': at least Width, wider if a row requires it (Fit)
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

// Fit widens the Auto columns to the widest row.
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

// fit cuts or pads b[start:] to width bytes, the unit that Slurm uses. It never cuts within a rune, but pads with blanks instead.
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

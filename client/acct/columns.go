package acct

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sluice-hpc/sluice/client/format"
)

// Column is a field with its width.
type Column struct {
	*Field
	Width int // bytes; negative: left-aligned
}

// Table is the layout of rows: columns, or texts with a separator.
type Table struct {
	Columns []Column
	// Parsable: texts separated by Separator, with Trailing also after the last one; otherwise columns of fixed width.
	Parsable, Trailing bool
	Separator          string
}

// The formats of options (sacct(1), -b and -l), and the default.
const (
	DefaultFormat = "jobid,jobname,partition,account,alloccpus,state,exitcode"
	BriefFormat   = "jobid,state,exitcode"
	LongFormat    = "jobid,jobidraw,jobname,partition,maxvmsize,maxvmsizenode,maxvmsizetask,avevmsize,maxrss,maxrssnode,maxrsstask,averss,maxpages," +
		"maxpagesnode,maxpagestask,avepages,mincpu,mincpunode,mincputask,avecpu,ntasks,alloccpus,elapsed,state,exitcode,avecpufreq,reqcpufreqmin," +
		"reqcpufreqmax,reqcpufreqgov,reqmem,consumedenergy,maxdiskread,maxdiskreadnode,maxdiskreadtask,avediskread,maxdiskwrite,maxdiskwritenode," +
		"maxdiskwritetask,avediskwrite,reqtres,alloctres,tresusageinave,tresusageinmax,tresusageinmaxnode,tresusageinmaxtask,tresusageinmin," +
		"tresusageinminnode,tresusageinmintask,tresusageintot,tresusageoutmax,tresusageoutmaxnode,tresusageoutmaxtask,tresusageoutave,tresusageouttot"
)

// maxColumn bounds the width of a column, which costs memory.
const maxColumn = 1 << 16

// FieldError is a field that does not exist.
type FieldError struct{ Name string }

func (e *FieldError) Error() string { return fmt.Sprintf("Invalid field requested: %q", e.Name) }

// Parse reads a list of fields, "jobid%20,state%-12,all". Names may be abbreviated; the first matching field wins. Blanks may
// precede a name. As in Slurm, an empty name ends the list.
func Parse(list string) ([]Column, error) { return parse(fields(), list) }

func parse(all []Field, list string) ([]Column, error) {
	var columns []Column
	for word := range strings.SplitSeq(list, ",") {
		if word = strings.TrimLeft(word, " \t\n"); word == "" {
			return columns, nil
		}
		name, width, sized := strings.Cut(word, "%")
		if name != "" && len(name) <= len("all") && strings.EqualFold("all"[:len(name)], name) {
			for i := range all {
				if !all[i].Newer {
					columns = append(columns, Column{&all[i], all[i].Width})
				}
			}
			continue
		}
		f := lookup(all, name)
		if f == nil {
			return nil, &FieldError{name}
		}
		c := Column{f, f.Width}
		if sized {
			c.Width = columnWidth(width)
		}
		columns = append(columns, c)
	}
	return columns, nil
}

// lookup finds a field by name or abbreviation; exact names take precedence, so that newer fields can be reached.
func lookup(all []Field, name string) *Field {
	for i := range all {
		if strings.EqualFold(all[i].Name, name) {
			return &all[i]
		}
	}
	for i := range all {
		if len(name) <= len(all[i].Name) && strings.EqualFold(all[i].Name[:len(name)], name) {
			return &all[i]
		}
	}
	return nil
}

// columnWidth reads the number after a % and ignores the rest. Without a number it is 0, which leaves only the column's blank.
func columnWidth(s string) int {
	end := strings.IndexFunc(s, func(r rune) bool { return (r < '0' || r > '9') && r != '-' })
	if end < 0 {
		end = len(s)
	}
	n, err := strconv.Atoi(s[:end])
	if err != nil {
		return 0
	}
	return max(min(n, maxColumn), -maxColumn)
}

// Names returns the fields in the order of --helpformat.
func Names() (names []string) {
	for _, f := range fields() {
		names = append(names, f.Name)
	}
	return names
}

// AppendHeader appends the header lines.
func (t *Table) AppendHeader(b []byte) []byte {
	if t.Parsable {
		for i, c := range t.Columns {
			b = t.separate(append(b, c.Name...), i)
		}
		return append(b, '\n')
	}
	for _, c := range t.Columns {
		b = append(appendCell(b, c.Name, c.Width, false), ' ')
	}
	b = append(b, '\n')
	for _, c := range t.Columns {
		b = append(b, strings.Repeat("-", max(c.Width, -c.Width))...)
		b = append(b, ' ')
	}
	return append(b, '\n')
}

// AppendRow appends a line.
func (t *Table) AppendRow(b []byte, c *Context, r Row) []byte {
	for i, col := range t.Columns {
		text := format.Escape(col.Text(c, r))
		if t.Parsable {
			b = t.separate(append(b, text...), i)
			continue
		}
		b = append(appendCell(b, text, col.Width, true), ' ')
	}
	return append(b, '\n')
}

func (t *Table) separate(b []byte, i int) []byte {
	if i < len(t.Columns)-1 || t.Trailing {
		b = append(b, t.Separator...)
	}
	return b
}

// appendCell pads or cuts a text to a width; with marked, a cut text ends with a +.
func appendCell(b []byte, text string, width int, marked bool) []byte {
	left := width < 0
	width = max(width, -width)
	if len(text) > width {
		keep := width
		if marked && width > 0 {
			keep--
		}
		for keep > 0 && !utf8.RuneStart(text[keep]) {
			keep--
		}
		if text = text[:keep]; marked && width > 0 {
			text += "+"
		}
	}
	pad := strings.Repeat(" ", width-len(text))
	if left {
		return append(append(b, text...), pad...)
	}
	return append(append(b, pad...), text...)
}

// Head is a column of a table whose rows are texts.
type Head struct {
	Name  string
	Width int    // negative: left-aligned
	Key   string // for the caller
}

// AppendHeads and AppendTexts are AppendHeader and AppendRow for tables of texts.
func (t *Table) AppendHeads(b []byte, heads []Head) []byte {
	h := &Table{Parsable: t.Parsable, Separator: t.Separator, Trailing: t.Trailing}
	for _, head := range heads {
		h.Columns = append(h.Columns, Column{&Field{Name: head.Name}, head.Width})
	}
	return h.AppendHeader(b)
}

// AppendTexts appends a line of texts.
func (t *Table) AppendTexts(b []byte, heads []Head, texts []string) []byte {
	for i, text := range texts {
		if text = format.Escape(text); !t.Parsable {
			b = append(appendCell(b, text, heads[i].Width, true), ' ')
			continue
		}
		if b = append(b, text...); i < len(texts)-1 || t.Trailing {
			b = append(b, t.Separator...)
		}
	}
	return append(b, '\n')
}

package format

import (
	"strings"
	"unicode/utf8"
)

// maxWidth bounds a column; a wider one would only fill memory.
const maxWidth = 1 << 16

// defaultWidth is how wide a plain field of -O is (squeue(1), --Format).
const defaultWidth = 20

// Widest stands in the commands' own formats, and in no other: no argument holds it.
const Widest = "\x00"

// Table is the fields of one kind of row.
type Table[T any] struct {
	Fields []Field[T]
	names  map[string]*Field[T]
	letter [256]*Field[T]
}

// NewTable indexes fields by letter and name; of two fields with the same, the first wins.
func NewTable[T any](fields []Field[T]) *Table[T] {
	t := &Table[T]{Fields: fields, names: make(map[string]*Field[T], 2*len(fields))}
	for i := range fields {
		f := &fields[i]
		if f.Letter != 0 && t.letter[f.Letter] == nil {
			t.letter[f.Letter] = f
		}
		for _, name := range f.Names {
			if t.names[name] == nil {
				t.names[name] = f
			}
		}
	}
	return t
}

// ByLetter returns the field of a -o letter, nil if there is none.
func (t *Table[T]) ByLetter(letter byte) *Field[T] { return t.letter[letter] }

// ByName returns the field of a -O name in any case, nil if there is none.
func (t *Table[T]) ByName(name string) *Field[T] { return t.names[strings.ToLower(name)] }

// Names are those of -O, in the order of the table; of each field the first.
func (t *Table[T]) Names() (names []string) {
	for i := range t.Fields {
		if len(t.Fields[i].Names) > 0 {
			names = append(names, t.Fields[i].Names[0])
		}
	}
	return names
}

// ParseLetters reads the value of -o: text and fields "%[.][size]x". A field that does not exist is named in unknown and printed
// as it was written, which is what Slurm does; two percent signs count as one. "%all" is every field with '|' between.
// size is in bytes; Widest after it widens the column to its widest row.
func (t *Table[T]) ParseLetters(spec string) (layout Layout[T], unknown []string) {
	text, rest, found := strings.Cut(spec, "%")
	if text != "" {
		layout = append(layout, Column[T]{Suffix: text})
	}
	for found {
		var token string
		token, rest, found = strings.Cut(rest, "%")
		if token == "" {
			continue
		}
		if strings.HasPrefix(token, "all") {
			layout = append(layout, t.all(token[len("all"):])...)
			continue
		}
		col, bad := t.letterColumn(token)
		if col.Field == nil {
			unknown = append(unknown, bad)
		}
		layout = append(layout, col)
	}
	return layout, unknown
}

// letterColumn reads one token, what stands behind a percent sign; bad is the letter when it names no field.
func (t *Table[T]) letterColumn(token string) (col Column[T], bad string) {
	i := 0
	if token[0] == '.' {
		col.Right = true
		i++
	}
	col.Width, i = number(token, i)
	if i < len(token) && token[i] == Widest[0] {
		col.Auto = true
		i++
	}
	if i < len(token) {
		if f := t.letter[token[i]]; f != nil {
			col.Field, col.Suffix = f, token[i+1:]
			return col, ""
		}
		_, size := utf8.DecodeRuneInString(token[i:])
		bad = token[i : i+size]
	}
	return Column[T]{Suffix: "%" + token}, bad
}

// number reads digits of s from i on; it stops counting at maxWidth.
func number(s string, i int) (value, next int) {
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		value = min(value*10+int(s[i]-'0'), maxWidth)
		i++
	}
	return value, i
}

func (t *Table[T]) all(suffix string) Layout[T] {
	var layout Layout[T]
	for i := range t.Fields {
		if t.Fields[i].Letter != 0 {
			layout = append(layout, Column[T]{Field: &t.Fields[i], Suffix: "|"})
		}
	}
	if len(layout) > 0 {
		layout[len(layout)-1].Suffix = suffix
	}
	return layout
}

// ParseNames reads the value of -O: "name[:[.][size][suffix]]" by commas. A name alone is 20 wide; with a colon and no size it is
// as wide as its text. What follows the size is printed after the field as it stands, control characters too: portals ask for
// "JobID:\x1F". Names that do not exist are returned; what was to follow them is printed all the same, as Slurm does.
func (t *Table[T]) ParseNames(spec string) (layout Layout[T], unknown []string) {
	for _, token := range strings.Split(spec, ",") {
		if token == "" {
			continue
		}
		name, form, sized := strings.Cut(token, ":")
		f := t.ByName(name)
		switch {
		case strings.EqualFold(name, "all") && !sized && t.names["all"] == nil && t.allByName():
			layout = append(layout, t.all("")...)
			continue
		case f == nil:
			unknown = append(unknown, name)
		case !sized:
			layout = append(layout, Column[T]{Field: f, Width: defaultWidth})
			continue
		}
		col := Column[T]{Field: f}
		i := 0
		if form != "" && form[0] == '.' {
			col.Right = true
			i++
		}
		if digits := strings.TrimLeft(form[i:], " "); digits != "" && digits[0] >= '0' && digits[0] <= '9' { // as Slurm: "partition: 5"
			i = len(form) - len(digits)
		}
		col.Width, i = number(form, i)
		col.Suffix = form[i:]
		if f == nil {
			col = Column[T]{Suffix: col.Suffix}
		}
		layout = append(layout, col)
	}
	return layout, unknown
}

// allByName: sinfo's -O knows "all", squeue's does not.
func (t *Table[T]) allByName() bool {
	return t.names["nodelist"] != nil && t.names["partitionname"] != nil
}

// Uses reports whether layout shows any of the fields for which want is true.
func (l Layout[T]) Uses(want func(*Field[T]) bool) bool {
	for i := range l {
		if l[i].Field != nil && want(l[i].Field) {
			return true
		}
	}
	return false
}

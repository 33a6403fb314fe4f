package format

import (
	"strings"
	"unicode/utf8"
)

// maxWidth bounds the width of a column, which costs memory.
const maxWidth = 1 << 16

// defaultWidth is the default width of a field of -O (squeue(1), --Format).
const defaultWidth = 20

// Widest is for the commands' own formats only: no argument can contain it.
const Widest = "\x00"

// Table is the fields of one kind of row.
type Table[T any] struct {
	Fields []Field[T]
	names  map[string]*Field[T]
	letter [256]*Field[T]
}

// NewTable indexes fields by letter and name; the first of several with the same one wins.
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

// Names returns the names for -O, in the order of the table; the first of each field.
func (t *Table[T]) Names() (names []string) {
	for i := range t.Fields {
		if len(t.Fields[i].Names) > 0 {
			names = append(names, t.Fields[i].Names[0])
		}
	}
	return names
}

// ParseLetters reads the value of -o: text and fields "%[.][size]x". As in Slurm, an unknown field is returned in unknown and
// printed as written; two percent signs count as one. "%all" means every field, separated by '|'. size is in bytes; Widest after it
// widens the column to its widest row.
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

// letterColumn reads the text after a percent sign; bad is the letter if it names no field.
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

// number reads the digits at s[i:]; larger values become maxWidth.
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

// ParseNames reads the value of -O: "name[:[.][size][suffix]]" by commas. A bare name is 20 wide; with a colon but no size it is as
// wide as its text. Text after the size is printed unchanged after the field, including control characters: portals request
// "JobID:\x1F". Unknown names are returned; as in Slurm, their suffix is still printed.
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

// allByName: sinfo's -O has "all", squeue's does not.
func (t *Table[T]) allByName() bool {
	return t.names["nodelist"] != nil && t.names["partitionname"] != nil
}

// Uses reports whether layout shows a field for which want is true.
func (l Layout[T]) Uses(want func(*Field[T]) bool) bool {
	for i := range l {
		if l[i].Field != nil && want(l[i].Field) {
			return true
		}
	}
	return false
}

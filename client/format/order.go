package format

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
)

// Order is a parsed --sort: rows are compared by its keys in turn.
type Order[T any] []Key[T]

// Key is one field to sort by.
type Key[T any] struct {
	Field *Field[T]
	Down  bool
	// Config sorts by the position in slurm.conf (sinfo's "#P").
	Config bool
}

// ParseSort reads letters with "+" or "-" before them, by commas (squeue(1), --sort). bad is the first letter unknown to --sort.
func (t *Table[T]) ParseSort(spec string) (order Order[T], bad string) {
	for i := 0; i < len(spec); i++ {
		var key Key[T]
		for i < len(spec) && strings.IndexByte("+-#,", spec[i]) >= 0 {
			switch spec[i] {
			case '-':
				key.Down = true
			case '#':
				key.Config = true
			case ',':
				key = Key[T]{}
			}
			i++
		}
		if i == len(spec) {
			break
		}
		f := t.letter[spec[i]]
		if f == nil || f.NoSort {
			if bad == "" {
				bad = Escape(spec[i : i+1])
			}
			continue
		}
		key.Field = f
		order = append(order, key)
	}
	return order, bad
}

// AppendKey appends a row's sort key: rows are compared by the bytes of their keys. A key takes a few dozen bytes, a record two
// thousand, so a view of a large queue need not hold the records.
func (o Order[T]) AppendKey(b []byte, c *Context, row T) []byte {
	for _, k := range o {
		start := len(b)
		switch {
		case k.Config && k.Field.Config != nil:
			b = appendNumberKey(b, k.Field.Config(row))
		case k.Field.Key != nil:
			b = k.Field.Key(b, c, row)
		default:
			b = append(k.Field.Text(b, c, row), 0)
		}
		if k.Down && !k.Config {
			for i := start; i < len(b); i++ {
				b[i] = ^b[i]
			}
		}
	}
	return b
}

// appendNumberKey encodes a number so that the order of bytes is that of numbers.
func appendNumberKey(b []byte, n int64) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(n)^1<<63)
}

// appendHostsKey sorts host lists by their first name in natural order, n2 before n10; the empty list comes last.
func appendHostsKey(b []byte, list string) []byte {
	if list == "" {
		return append(b, 0xff, 0)
	}
	name, ranges, bracket := strings.Cut(list, "[")
	if comma := strings.IndexByte(name, ','); comma >= 0 {
		name, bracket = name[:comma], false
	}
	if bracket {
		if end := strings.IndexAny(ranges, "-,]"); end >= 0 {
			ranges = ranges[:end]
		}
		name += ranges
	}
	return append(appendNaturalKey(b, name), append([]byte(list), 0)...)
}

// appendNaturalKey encodes a text so that numbers in it sort by value.
func appendNaturalKey(b []byte, s string) []byte {
	for i := 0; i < len(s); {
		if s[i] < '0' || s[i] > '9' {
			b = append(b, s[i])
			i++
			continue
		}
		for i < len(s)-1 && s[i] == '0' && s[i+1] >= '0' && s[i+1] <= '9' {
			i++
		}
		end := i
		for end < len(s) && s[end] >= '0' && s[end] <= '9' {
			end++
		}
		// The number of digits comes first; after a '0', so that numbers sort before letters as digits do.
		b = append(b, '0', byte(min(end-i, 255)))
		b = append(b, s[i:end]...)
		i = end
	}
	return append(b, 0)
}

// Sorter collects rows as text and writes them in order. Records can be freed as soon as they are added.
type Sorter[T any] struct {
	Layout Layout[T]
	Order  Order[T]
	data   []byte
	rows   []sortedRow
}

type sortedRow struct{ key, text, end uint32 } // offsets into data: the key, then the text

// Add formats and stores a row. It returns false if the view is too large to hold (4 GiB of text).
func (s *Sorter[T]) Add(c *Context, row T) bool {
	key := len(s.data)
	s.data = s.Order.AppendKey(s.data, c, row)
	text := len(s.data)
	s.data = append(s.Layout.AppendRow(s.data, c, row), '\n')
	if len(s.data) > 1<<32-1 {
		return false
	}
	s.rows = append(s.rows, sortedRow{uint32(key), uint32(text), uint32(len(s.data))})
	return true
}

// Lines yields the rows in order, each with its newline; equal rows keep the order in which they were added. The bytes are valid
// until the next row.
func (s *Sorter[T]) Lines(yield func(line []byte) bool) {
	if len(s.Order) > 0 {
		slices.SortStableFunc(s.rows, func(a, b sortedRow) int {
			return bytes.Compare(s.data[a.key:a.text], s.data[b.key:b.text])
		})
	}
	for _, r := range s.rows {
		if !yield(s.data[r.text:r.end]) {
			return
		}
	}
}

// Len is the number of rows.
func (s *Sorter[T]) Len() int { return len(s.rows) }

package format

import (
	"bytes"
	"slices"
	"strings"
)

// Order is a parsed --sort: rows are compared by its keys in turn.
type Order[T any] []Key[T]

// Key is one field to sort by.
type Key[T any] struct {
	Field *Field[T]
	Down  bool
	// Config keeps the order in which rows came (sinfo's "#P": partitions as in slurm.conf).
	Config bool
}

// ParseSort reads letters with "+" or "-" before them, by commas (squeue(1), --sort). bad is the first letter that --sort does
// not know.
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

// Sort orders rows; equal rows stay as they came. Texts are made once per row and key, not once per comparison.
func (o Order[T]) Sort(c *Context, rows []T) {
	if len(o) == 0 || len(rows) < 2 {
		return
	}
	type keyed struct {
		row   T
		texts [][]byte
	}
	texts := 0
	for _, k := range o {
		if k.Field.Compare == nil && !k.Config {
			texts++
		}
	}
	all := make([]keyed, len(rows))
	for i, row := range rows {
		all[i].row = row
		if texts > 0 {
			all[i].texts = make([][]byte, 0, texts)
			for _, k := range o {
				if k.Field.Compare == nil && !k.Config {
					all[i].texts = append(all[i].texts, k.Field.Text(nil, c, row))
				}
			}
		}
	}
	slices.SortStableFunc(all, func(a, b keyed) int {
		n := 0
		for _, k := range o {
			var r int
			switch {
			case k.Config:
				continue
			case k.Field.Compare != nil:
				r = k.Field.Compare(c, a.row, b.row)
			default:
				r = bytes.Compare(a.texts[n], b.texts[n])
				n++
			}
			if r == 0 {
				continue
			}
			if k.Down {
				return -r
			}
			return r
		}
		return 0
	})
	for i := range all {
		rows[i] = all[i].row
	}
}

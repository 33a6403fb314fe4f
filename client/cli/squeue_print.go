package cli

import (
	"github.com/sluice-hpc/sluice/client/format"
)

// tableOptions say what stands above a table.
type tableOptions struct {
	noHeader bool
	stamp    bool   // the time (-l, -i)
	cluster  string // the line that -M asks for
}

// flushBytes is how much of a table is gathered before it is written.
const flushBytes = 64 << 10

// printTable sorts rows and writes them.
func printTable[T any](env *Env, fc *format.Context, layout format.Layout[T], order format.Order[T], rows []T, o tableOptions) int {
	layout.Fit(fc, rows)
	table := &format.Sorter[T]{Layout: layout, Order: order}
	for _, row := range rows {
		if !table.Add(fc, row) {
			env.Errorf("the view is too large; choose fewer rows")
			return 1
		}
	}
	return printLines(env, fc, layout, o, table.Lines)
}

// printLines writes a view. A reader that goes away, such as head, ends it without a complaint.
func printLines[T any](env *Env, fc *format.Context, layout format.Layout[T], o tableOptions, lines func(func([]byte) bool)) int {
	b := make([]byte, 0, flushBytes+4096)
	if o.cluster != "" && !o.noHeader {
		b = append(append(append(b, "CLUSTER: "...), format.Escape(o.cluster)...), '\n')
	}
	if !o.noHeader {
		if o.stamp {
			b = append(fc.AppendStamp(b), '\n')
		}
		b = append(layout.AppendHeader(b), '\n')
	}
	var err error
	lines(func(line []byte) bool {
		if b = append(b, line...); len(b) >= flushBytes {
			_, err = env.Stdout.Write(b)
			b = b[:0]
		}
		return err == nil
	})
	if err == nil {
		_, err = env.Stdout.Write(b)
	}
	if err != nil {
		return 1
	}
	return 0
}

package view

import (
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
)

// TableOptions select the lines around a table.
type TableOptions struct {
	NoHeader bool
	Stamp    bool   // print the time (-l, -i, -v)
	Note     string // a line below it (squeue -v)
	Cluster  string // line for -M
}

// FlushBytes is how much of a table is buffered before a write.
const FlushBytes = 64 << 10

// PrintTable sorts rows and writes them.
func PrintTable[T any](env *command.Env, fc *format.Context, layout format.Layout[T], order format.Order[T], rows []T, o TableOptions) int {
	layout.Fit(fc, rows)
	table := &format.Sorter[T]{Layout: layout, Order: order}
	for _, row := range rows {
		if !table.Add(fc, row) {
			env.Errorf("the view is too large; choose fewer rows")
			return 1
		}
	}
	return PrintLines(env, fc, layout, o, table.Lines)
}

// PrintLines writes a view. A reader that goes away, such as head, ends it without an error message.
func PrintLines[T any](env *command.Env, fc *format.Context, layout format.Layout[T], o TableOptions, lines func(func([]byte) bool)) int {
	b := make([]byte, 0, FlushBytes+4096)
	if o.Cluster != "" && !o.NoHeader {
		b = append(append(append(b, "CLUSTER: "...), format.Escape(o.Cluster)...), '\n')
	}
	if !o.NoHeader && o.Stamp {
		b = append(fc.AppendStamp(b), '\n')
	}
	if o.Note != "" {
		b = append(append(b, o.Note...), '\n')
	}
	if !o.NoHeader {
		b = append(layout.AppendHeader(b), '\n')
	}
	var err error
	lines(func(line []byte) bool {
		if b = append(b, line...); len(b) >= FlushBytes {
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

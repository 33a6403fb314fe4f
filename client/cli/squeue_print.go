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

// printTable writes a view. A reader that goes away, such as head, ends it without a complaint.
func printTable[T any](env *Env, fc *format.Context, layout format.Layout[T], rows []T, o tableOptions) int {
	layout.Fit(fc, rows)
	b := make([]byte, 0, flushBytes+4096)
	if o.cluster != "" && !o.noHeader {
		b = append(append(append(b, "CLUSTER: "...), o.cluster...), '\n')
	}
	if !o.noHeader {
		if o.stamp {
			b = append(fc.AppendStamp(b), '\n')
		}
		b = append(layout.AppendHeader(b), '\n')
	}
	for i := range rows {
		b = append(layout.AppendRow(b, fc, rows[i]), '\n')
		if len(b) >= flushBytes {
			if _, err := env.Stdout.Write(b); err != nil {
				return 1
			}
			b = b[:0]
		}
	}
	if _, err := env.Stdout.Write(b); err != nil {
		return 1
	}
	return 0
}

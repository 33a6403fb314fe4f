// Package enrol is `sluice token`, `sluice node` and `sluice certs`: they add hosts to the cluster, remove them and list them.
package enrol

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/opt"
)

// connected runs a verb with a connection to the controller.
func connected(run func(context.Context, *command.Call, *client.Client) error) func(*command.Call) error {
	return func(call *command.Call) error {
		ctx := context.Background()
		c, err := call.Dial(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		return run(ctx, call, c)
	}
}

var noHeader = command.Option{Name: opt.Name{Long: "noheader", Short: 'h'}, Help: "without headings"}

// table prints rows with aligned columns, without headings if bare.
func table(out io.Writer, bare bool, rows [][]string) error {
	width := make([]int, len(rows[0]))
	if bare {
		rows = rows[1:]
	}
	for _, r := range rows {
		for i, cell := range r {
			width[i] = max(width[i], len([]rune(cell)))
		}
	}
	for _, r := range rows {
		var b strings.Builder
		for i, cell := range r {
			fmt.Fprintf(&b, "%-*s  ", width[i], cell)
		}
		if _, err := fmt.Fprintln(out, strings.TrimRight(b.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

// dash replaces an empty cell, because programs count columns.
func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// moment formats a time; "" if there is none.
func moment(ns int64) string {
	if ns == 0 {
		return ""
	}
	return time.Unix(0, ns).Format("2006-01-02T15:04:05")
}

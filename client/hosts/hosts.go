// Package hosts is `sluice token`, `sluice node` and `sluice certs`: which hosts belong to the cluster, and how they
// join and are removed.
package hosts

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
)

// verb is one word behind the command.
type verb struct {
	usage string
	flags func(*flag.FlagSet, *options)
	args  int // how many
	run   func(ctx context.Context, env *command.Env, c *client.Client, o *options) error
}

// options are of all verbs.
type options struct {
	args    []string
	node    string
	role    string
	ttl     time.Duration
	anyNode bool
	all     bool
	bare    bool
	wrong   bool
}

// main runs one of the verbs; "" stands for a command without one.
func main(env *command.Env, name, usage string, verbs map[string]verb, args []string) int {
	word := ""
	if _, bare := verbs[""]; !bare {
		if len(args) == 0 || args[0] == "--help" || args[0] == "-h" || args[0] == "help" {
			fmt.Fprint(env.Stdout, usage)
			return 0
		}
		word, args = args[0], args[1:]
	}
	v, ok := verbs[word]
	if !ok {
		fmt.Fprintf(env.Stderr, "sluice %s: unknown word %q; see `sluice %s --help`\n", name, format.Escape(word), name)
		return 2
	}
	o, err := parse(v, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(env.Stdout, v.usage)
		return 0
	case err != nil:
		fmt.Fprintf(env.Stderr, "sluice %s: %v; see `sluice %s --help`\n", name, err, strings.TrimSpace(name+" "+word))
		return 2
	}
	ctx := context.Background()
	c, err := env.Dial(ctx)
	if err == nil {
		defer func() { _ = c.Close() }()
		err = v.run(ctx, env, c, o)
	}
	if errors.Is(err, errProblems) { // they have been shown
		return 1
	}
	if err != nil {
		text, more := command.Phrase(err)
		if more != "" {
			text += ": " + more
		}
		fmt.Fprintf(env.Stderr, "sluice %s: %s\n", strings.TrimSpace(name+" "+word), format.Escape(text))
		return 1
	}
	return 0
}

// parse takes options before, between and behind the arguments.
func parse(v verb, args []string) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Usage = func() {}
	if v.flags != nil {
		v.flags(f, o)
	}
	for {
		switch err := f.Parse(args); {
		case errors.Is(err, flag.ErrHelp):
			return nil, err
		case err != nil:
			return nil, errors.New(command.BadOption(f, err))
		}
		if f.NArg() == 0 {
			break
		}
		o.args, args = append(o.args, f.Arg(0)), f.Args()[1:]
	}
	switch {
	case len(o.args) > v.args:
		return nil, fmt.Errorf("unknown argument %q", o.args[v.args])
	case len(o.args) < v.args:
		return nil, errors.New("a name is missing")
	}
	return o, nil
}

// table prints rows with aligned columns; without their headings when bare.
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

// shortTime is a moment for a table; 0 is none.
func shortTime(ns int64) string {
	if ns == 0 {
		return "-"
	}
	return time.Unix(0, ns).Format("2006-01-02T15:04:05")
}

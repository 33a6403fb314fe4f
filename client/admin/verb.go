package admin

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/sluice-hpc/sluice/client/command"
)

// Verb is one of the verbs of `sluice`. A library for command lines was rejected: setting one up, with its templates and regular
// expressions, would cost each sbatch in the same program a fifth of its time.
type Verb struct {
	Name        string
	Usage       string // one line of help
	Args        string // as in the help, "[FILE]"
	Description string
	Flags       func(*flag.FlagSet) // declares the options; nil: none
	Run         func(*Call) error
	Verbs       []*Verb // instead of Run
}

// Call is a verb at work.
type Call struct {
	Args           []string // behind the options
	Stdout, Stderr io.Writer

	flags *flag.FlagSet
}

// String, Int and Bool give the value of an option of that type.
func (c *Call) String(name string) string { return value[string](c, name) }
func (c *Call) Int(name string) int       { return value[int](c, name) }
func (c *Call) Bool(name string) bool     { return value[bool](c, name) }

func value[T any](c *Call, name string) T {
	v, ok := c.flags.Lookup(name).Value.(flag.Getter).Get().(T)
	if !ok {
		panic("--" + name + " has another type") // a mistake in the verb, which its first use shows
	}
	return v
}

// IsSet reports whether an option was given.
func (c *Call) IsSet(name string) bool {
	set := false
	c.flags.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	return set
}

// run runs the verb that args begin with.
func run(verbs []*Verb, above string, args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 || args[0] == "--help" || args[0] == "-h" || args[0] == "help" {
		listVerbs(stdout, above, verbs)
		return nil
	}
	for _, v := range verbs {
		if v.Name != args[0] {
			continue
		}
		name := strings.TrimSpace(above + " " + v.Name)
		if v.Verbs != nil {
			return run(v.Verbs, name, args[1:], stdout, stderr)
		}
		return v.call(name, args[1:], stdout, stderr)
	}
	if strings.HasPrefix(args[0], "-") {
		return fmt.Errorf("unknown option %s; %s lists the options", args[0], quoted(above, "--help"))
	}
	return fmt.Errorf("unknown command %q; %s lists them", args[0], quoted(above, "--help"))
}

func quoted(words ...string) string {
	return "`" + strings.Join(strings.Fields("sluice "+strings.Join(words, " ")), " ") + "`"
}

func (v *Verb) call(name string, args []string, stdout, stderr io.Writer) error {
	c := &Call{Stdout: stdout, Stderr: stderr, flags: v.flagSet(name)}
	err := c.flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		v.help(stdout, name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s; see %s", command.BadOption(c.flags, err), quoted(name, "--help"))
	}
	c.Args = c.flags.Args()
	if v.Args == "" && len(c.Args) > 0 {
		return fmt.Errorf("unknown argument %q; see %s", c.Args[0], quoted(name, "--help"))
	}
	return v.Run(c)
}

func (v *Verb) flagSet(name string) *flag.FlagSet {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Usage = func() {}
	if v.Flags != nil {
		v.Flags(f)
	}
	return f
}

func listVerbs(out io.Writer, above string, verbs []*Verb) {
	fmt.Fprintf(out, "usage: %s COMMAND [options]\n\n", strings.TrimSpace("sluice "+above))
	for _, v := range verbs {
		fmt.Fprintf(out, "  %-10s %s\n", v.Name, v.Usage)
	}
}

// help describes a verb and its options. An option's argument is what its usage has in back quotes; one without usage is
// another name of an option above.
func (v *Verb) help(out io.Writer, name string) {
	fmt.Fprintln(out, strings.TrimSpace("usage: sluice "+name+" [options] "+v.Args))
	fmt.Fprintf(out, "\n%s%s.\n", strings.ToUpper(v.Usage[:1]), v.Usage[1:])
	if v.Description != "" {
		fmt.Fprintf(out, "\n%s\n", v.Description)
	}
	fmt.Fprint(out, "\nOptions:\n")
	line := func(option, usage string) { fmt.Fprintf(out, "  %-20s %s\n", option, usage) }
	v.flagSet(name).VisitAll(func(f *flag.Flag) {
		argument, usage := flag.UnquoteUsage(f)
		if f.Usage == "" {
			return
		}
		if b, ok := f.Value.(interface{ IsBoolFlag() bool }); ok && b.IsBoolFlag() {
			argument = ""
		}
		if f.DefValue != "" && f.DefValue != "0" && f.DefValue != "0s" && f.DefValue != "false" {
			usage += " (default: " + f.DefValue + ")"
		}
		line(strings.TrimSpace("--"+f.Name+" "+argument), usage)
	})
	line("--help, -h", "show this")
}

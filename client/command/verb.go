package command

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/client/terminal"
	"github.com/sluice-hpc/sluice/client/wire"
)

// Verb is a verb of `sluice` that is not one of Slurm's commands. It has options and a function, or verbs of its own like `sluice
// token create`. Its options are parsed like those of Slurm's commands. A command line library was rejected: initialising one, with
// its templates and regular expressions, would cost each sbatch in the same program a fifth of its time.
type Verb struct {
	Name  string
	Line  string // description in a list of verbs
	Args  string // the arguments in --help: "NAME", "[FILE]", "JOB…"
	Page         // an empty Usage is generated from the fields above, and --help is added to Options
	Run   func(*Call) error
	Verbs []*Verb // instead of Run
}

// Kind is the type of an option's argument.
type Kind uint8

const (
	Text  Kind = iota
	Whole      // a number
	Span       // a time.Duration
)

// Call is one invocation of a verb.
type Call struct {
	*Env
	Args []string // without options

	options []Option
	hits    []opt.Hit
}

// Main runs a verb and returns the exit code. env.Name is the verb as typed, `sluice token`.
func (v *Verb) Main(env *Env, args []string) int {
	for _, below := range v.Verbs {
		if len(args) > 0 && below.Name == args[0] {
			env.Name += " " + below.Name
			return below.Main(env, args[1:])
		}
	}
	return env.Finish(env.Exit(v.run(env, args)))
}

func (v *Verb) run(env *Env, args []string) error {
	c := &Call{Env: env, options: v.allOptions()}
	names := NamesOf(c.options)
	var err error
	if c.hits, c.Args, err = env.Scan(names, args, v.Verbs == nil); err != nil {
		return err
	}
	if c.Given("help") || v.Verbs != nil && (len(c.Args) == 0 || c.Args[0] == "help") {
		_, err := fmt.Fprint(env.Stdout, v.HelpText(env.Name))
		return err
	}
	if v.Verbs != nil {
		return Unknown(c.Args[0], namesOfVerbs(v.Verbs))
	}
	if err := c.check(v.Args); err != nil {
		return err
	}
	return v.Run(c)
}

// Unknown is the error for a verb that does not exist.
func Unknown(word string, words []string) error {
	hint := ""
	if near := opt.Nearest(words, word); near != "" {
		hint = "did you mean " + near + "?"
	}
	return &opt.UsageError{Text: fmt.Sprintf("unknown command %q", word), Hint: hint}
}

func namesOfVerbs(verbs []*Verb) (names []string) {
	for _, v := range verbs {
		names = append(names, v.Name)
	}
	return names
}

// check rejects values of the wrong kind, and too few or too many arguments.
func (c *Call) check(args string) error {
	for _, h := range c.hits {
		o := c.option(Canonical(&c.options[h.Index].Name))
		if want := o.Is.lacks(h.Value); h.Given && want != "" {
			return &opt.UsageError{Text: fmt.Sprintf("--%s=%s: expected %s", o.Long, terminal.Escape(h.Value), want)}
		}
	}
	words := strings.Fields(args)
	most := len(words)
	for i, word := range words {
		if strings.HasSuffix(word, "…") {
			most = math.MaxInt
		}
		if len(c.Args) <= i && !strings.HasPrefix(word, "[") {
			return &opt.UsageError{Text: strings.TrimSuffix(word, "…") + " is missing"}
		}
	}
	if len(c.Args) > most {
		return &opt.UsageError{Text: fmt.Sprintf("unknown argument %q", c.Args[most])}
	}
	return nil
}

// lacks describes the expected value, "" if value is valid.
func (k Kind) lacks(value string) string {
	var err error
	want := ""
	switch k {
	case Whole:
		_, err = strconv.Atoi(value)
		want = "a whole number"
	case Span:
		_, err = time.ParseDuration(value)
		want = "a time such as 30s or 2m"
	}
	if err == nil {
		return ""
	}
	return want
}

func (c *Call) option(name string) *Option {
	for i := range c.options {
		if c.options[i].Long == name {
			return &c.options[i]
		}
	}
	panic("there is no --" + name) // a bug in the verb, found at its first use
}

// Given reports whether an option was given.
func (c *Call) Given(name string) bool {
	for _, h := range c.hits {
		if Canonical(&c.options[h.Index].Name) == name {
			return true
		}
	}
	return false
}

// Text returns the last value of an option, or its default.
func (c *Call) Text(name string) string {
	value := c.option(name).Default
	for _, h := range c.hits {
		if Canonical(&c.options[h.Index].Name) == name {
			value = h.Value
		}
	}
	return value
}

// Int returns the value of an option of kind Whole.
func (c *Call) Int(name string) int {
	n, _ := strconv.Atoi(c.Text(name))
	return n
}

// Duration returns the value of an option of kind Span.
func (c *Call) Duration(name string) time.Duration {
	d, _ := time.ParseDuration(c.Text(name))
	return d
}

// Each calls set for the options in the order given, with their names in the table.
func (c *Call) Each(set func(name, value string) error) error {
	for _, h := range c.hits {
		if err := set(Canonical(&c.options[h.Index].Name), h.Value); err != nil {
			return err
		}
	}
	return nil
}

// allOptions returns the options of the table, with defaults in their help, and --help. Its letter -h may be taken by another
// option.
func (v *Verb) allOptions() []Option {
	help := Option{Name: opt.Name{Long: "help", Short: 'h'}, Help: "show this help"}
	options := make([]Option, 0, len(v.Options)+1)
	for _, o := range v.Options {
		if o.Default != "" {
			o.Help += " (default: " + o.Default + ")"
		}
		if o.Short == 'h' {
			help.Short = 0
		}
		options = append(options, o)
	}
	return append(options, help, Option{Name: opt.Name{Long: "usage", Canon: "help"}})
}

// HelpText returns the text of --help for a verb that is typed as name.
func (v *Verb) HelpText(name string) string {
	p := v.Page
	p.Options = v.allOptions()
	if p.About == "" {
		p.About = strings.ToUpper(v.Line[:1]) + v.Line[1:] + "."
	}
	if v.Verbs != nil {
		text := ""
		for _, below := range v.Verbs {
			text += fmt.Sprintf("  %-14s %s\n", strings.TrimSpace(below.Name+" "+below.Args), below.Line)
		}
		p.Blocks = append([]Block{{"Commands", text}}, p.Blocks...)
	}
	switch {
	case p.Usage != "":
	case v.Verbs != nil:
		p.Usage = "Usage: " + name + " COMMAND [OPTION...]"
	default:
		p.Usage = strings.TrimSpace("Usage: " + name + " [OPTION...] " + v.Args)
	}
	return p.Help()
}

// said formats an error for printing. Answers of a controller contain names chosen by other users.
func said(err error) string {
	var refusal *wire.Refusal
	if errors.As(err, &refusal) {
		return terminal.Escape(err.Error())
	}
	return err.Error()
}

// Plural formats a count: "1 node", "2 nodes".
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

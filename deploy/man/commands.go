package main

import (
	"fmt"
	"strings"

	"github.com/sluice-hpc/sluice/client/acct"
	"github.com/sluice-hpc/sluice/client/cli"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/opt"
)

// last are the sections at the end of a command's page.
var last = []string{"ENVIRONMENT", "FILES", "EXIT STATUS", "SEE ALSO"}

// commandPage returns the page of one of Slurm's commands.
func commandPage(c cli.Page) *page {
	p := begin("sluice-"+c.Name, c.Name, 1, c.Line, c.Name)
	p.section1("SYNOPSIS")
	for l := range strings.Lines(c.Usage) {
		l = strings.TrimSpace(strings.TrimPrefix(l, "Usage: "))
		if l != "" && !strings.HasSuffix(l, ":") {
			p.roff.WriteString(escape(l) + "\n.br\n")
		}
	}
	fmt.Fprintf(&p.roff, "%s …\n", escape("sluice "+c.Name))
	p.section1("DESCRIPTION")
	p.prose(c.About)
	p.roff.WriteString(".PP\n")
	p.own("DESCRIPTION", true)
	p.options(&c.Page)
	for _, b := range c.Blocks {
		if b.Title != "Environment" {
			p.section1(strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(b.Title), "Valid "), " values are"))
			p.example(b.Text)
		}
	}
	p.fields(c.Name)
	p.rest(last...)
	p.environment(&c.Page)
	p.common("FILES")
	if c.Examples != "" {
		p.section1("EXAMPLES")
		p.example(c.Examples)
	}
	p.common("EXIT STATUS")
	p.seeAlso("sluice(1)", "sluice-slurm.conf(5)")
	return p
}

// options writes the options, group by group.
func (p *page) options(c *command.Page) {
	p.section1("OPTIONS")
	for _, g := range c.Groups() {
		if g.Title != "" {
			p.section2(g.Title)
		}
		for _, o := range g.Options {
			meaning := escape(upper(o.Help) + ".")
			if other := c.Aliases(&o); len(other) > 0 {
				meaning += "\nAlso written " + bold(strings.Join(other, ", ")) + "."
			}
			if o.Env != "" {
				meaning += "\nVariable: " + bold(o.Env) + "."
			}
			p.term(written(&o), meaning)
		}
	}
}

// written returns an option as typed.
func written(o *command.Option) string {
	argument := ""
	switch o.Arg {
	case opt.Required:
		argument = "=\\fI" + escapeWord(o.Meta) + "\\fR"
	case opt.Optional:
		argument = "[=\\fI" + escapeWord(o.Meta) + "\\fR]"
	}
	long := bold("--"+o.Long) + argument
	if o.Short == 0 {
		return long
	}
	return bold("-"+string(rune(o.Short))) + ", " + long
}

// environment writes the variables of the options and those in the page's file.
func (p *page) environment(c *command.Page) {
	p.section1("ENVIRONMENT")
	for i := range c.Options {
		o := &c.Options[i]
		for variable := range strings.SplitSeq(o.Env, ", ") {
			if variable != "" {
				p.term(bold(variable), "The same as "+bold("--"+o.Long)+"; the option counts where both are given.")
			}
		}
	}
	p.own("ENVIRONMENT", true)
	common := begin("common", "", 1, "", "common")
	p.prose(common.text["ENVIRONMENT"])
}

// common writes a section of the page's file, or the version that all commands share.
func (p *page) common(title string) {
	if !p.own(title, false) {
		p.section1(title)
		p.prose(begin("common", "", 1, "", "common").text[title])
	}
}

func (p *page) seeAlso(pages ...string) {
	p.section1("SEE ALSO")
	if text, ok := p.text["SEE ALSO"]; ok {
		pages = append(strings.Fields(text), pages...)
	}
	for i, name := range pages {
		name, section, _ := strings.Cut(strings.TrimSuffix(name, ")"), "(")
		comma := ","
		if i == len(pages)-1 {
			comma = ""
		}
		fmt.Fprintf(&p.roff, ".BR %s (%s)%s\n", escapeWord(name), section, comma)
	}
}

// fields writes the columns that a command can show.
func (p *page) fields(name string) {
	list := func(words []string) { p.roff.WriteString(escape(strings.Join(words, ", ")) + ".\n") }
	switch name {
	case "squeue":
		letters(p, format.Jobs())
	case "sinfo":
		letters(p, format.Nodes())
	case "sprio":
		letters(p, format.Priorities())
	case "sacct":
		p.section1("FIELDS")
		list(acct.FieldNames())
	case "sstat":
		p.section1("FIELDS")
		list(acct.LiveNames())
	}
}

func letters[T any](p *page, t *format.Table[T]) {
	p.section1("FIELDS")
	p.section2("Letters of --format")
	for i := range t.Fields {
		if f := &t.Fields[i]; f.Letter != 0 && t.ByLetter(f.Letter) == f {
			p.term(bold("%"+string(rune(f.Letter))), escape(f.Header))
		}
	}
	if names := t.Names(); len(names) > 0 {
		p.section2("Names of --Format")
		p.roff.WriteString(escape(strings.Join(names, ", ")) + ".\n")
	}
}

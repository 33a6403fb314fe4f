package command

import (
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/client/opt"
)

// Page is what a command says of itself. --help prints it, and the manual page and the completions are made of it.
type Page struct {
	Usage    string // what --help begins with; its lines say how the command is called
	About    string // what it does
	Title    string // above the options; "" without
	Options  []Option
	Blocks   []Block // what else there is to say
	Examples string  // a command in each line, with two spaces before it
}

// Block is a part of a Page with a title of its own; its text is printed as it is.
type Block struct{ Title, Text string }

// Help is what --help prints.
func (p Page) Help() string {
	var b strings.Builder
	b.WriteString(strings.TrimSuffix(p.Usage, "\n") + "\n\n" + strings.TrimSuffix(p.About, "\n") + "\n\n")
	if p.Title != "" {
		b.WriteString(p.Title + "\n")
	}
	for i, g := range p.Groups() {
		if g.Title != "" {
			b.WriteString(strings.Repeat("\n", min(i, 1)) + g.Title + ":\n")
		}
		for _, o := range g.Options {
			opt.WriteHelp(&b, o.Name, o.Meta, o.Help)
		}
	}
	for _, block := range p.Blocks {
		b.WriteString("\n" + block.Title + ":\n" + block.Text)
	}
	if p.Examples != "" {
		b.WriteString("\nExamples:\n" + p.Examples)
	}
	return b.String()
}

// HelpOptions is the title of the options that show help and version; they come last.
const HelpOptions = "Help options"

// Group are the options under one title.
type Group struct {
	Title   string
	Options []Option
}

// Groups are the options that have a help, in groups, in the order of the table. Other names of an option are left out.
func (p *Page) Groups() (groups []Group) {
	help := Group{Title: HelpOptions}
	for _, o := range p.Options {
		switch {
		case o.Help == "":
		case slices.Contains([]string{"help", "usage", "version"}, o.Long), o.Group == HelpOptions:
			help.Options = append(help.Options, o)
		default:
			i := slices.IndexFunc(groups, func(g Group) bool { return g.Title == o.Group })
			if i < 0 {
				i, groups = len(groups), append(groups, Group{Title: o.Group})
			}
			groups[i].Options = append(groups[i].Options, o)
		}
	}
	return append(groups, help)
}

// Aliases are the other names of an option, as they are typed.
func (p *Page) Aliases(o *Option) (names []string) {
	for i := range p.Options {
		a := &p.Options[i]
		if a.Canon != o.Long || a.Canon == "" {
			continue
		}
		if a.Short != 0 {
			names = append(names, "-"+string(rune(a.Short)))
		}
		if a.Long != "" {
			names = append(names, "--"+a.Long)
		}
	}
	return names
}

// JobOptions are the options of a command that describes a job.
func JobOptions(cmd opt.Commands) (rows []Option) {
	for i := range opt.Options {
		if o := &opt.Options[i]; o.Cmds&cmd != 0 {
			rows = append(rows, Option{Name: o.Name, Env: strings.Join(o.Variables(cmd), ", "), Meta: o.Meta, Help: o.Help,
				Group: o.Section.String()})
		}
	}
	sections := opt.Sections()
	slices.SortStableFunc(rows, func(a, b Option) int { return slices.Index(sections, a.Group) - slices.Index(sections, b.Group) })
	return rows
}

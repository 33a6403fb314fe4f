package command

import (
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/client/joboptions"
	"github.com/sluice-hpc/sluice/client/opt"
)

// Page describes a command. --help, the manual page and the completions are generated from it.
type Page struct {
	Usage    string // first lines of --help: the synopsis
	About    string // description
	Title    string // heading of the options; "" for none
	Options  []Option
	Blocks   []Block // further sections
	Examples string  // one command per line, indented by two spaces
}

// Block is a section of a Page with its own title; its text is printed unchanged.
type Block struct{ Title, Text string }

// Help returns the text of --help.
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

// HelpOptions is the title of the help and version options, which come last.
const HelpOptions = "Help options"

// Group has the options under one title.
type Group struct {
	Title   string
	Options []Option
}

// Groups returns the documented options, grouped, in the order of the table. Aliases are left out.
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

// Aliases returns the other spellings of an option.
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

// JobOptions returns the options of a command that describes a job.
func JobOptions(cmd joboptions.Commands) (rows []Option) {
	for i := range joboptions.Options {
		if o := &joboptions.Options[i]; o.Cmds&cmd != 0 {
			rows = append(rows, Option{Name: o.Name, Env: strings.Join(o.Variables(cmd), ", "), Meta: o.Meta, Help: o.Help,
				Group: o.Section.String()})
		}
	}
	sections := joboptions.Sections()
	slices.SortStableFunc(rows, func(a, b Option) int { return slices.Index(sections, a.Group) - slices.Index(sections, b.Group) })
	return rows
}

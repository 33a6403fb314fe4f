package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/client/cli"
	"github.com/sluice-hpc/sluice/client/command"
)

// sluicePage returns the page of sluice itself: its list of commands, and --help of each of its verbs.
func sluicePage(bin string) (*page, error) {
	p := begin("sluice", "", 1, "the commands of the Sluice batch scheduler in one program", "sluice")
	p.section1("SYNOPSIS")
	p.roff.WriteString(bold("sluice") + " \\fICOMMAND\\fR [arguments]\n")
	p.own("DESCRIPTION", false)
	p.section1("SLURM'S COMMANDS")
	for _, c := range cli.Pages() {
		p.term(bold(c.Name), escape(upper(c.Line)+"; see")+" \\fBsluice\\-"+c.Name+"\\fR(1).")
	}
	p.section1("OTHER COMMANDS")
	for _, v := range cli.Verbs() {
		if slices.Contains(verbPages, v.Name) {
			p.term(bold("sluice "+v.Name), escape(upper(v.Line)+"; see")+" \\fBsluice\\-"+v.Name+"\\fR(1).")
		}
	}
	for _, words := range [][]string{{"down"}, {"token"}, {"token", "create"}, {"token", "list"}, {"token", "revoke"}, {"node"},
		{"node", "list"}, {"node", "revoke"}, {"certs"}, {"conf", "check"}, {"adopt"}, {"sim"}, {"completion"}} {
		help, err := output(bin, "sluice", append(words, "--help")...)
		if err != nil {
			return nil, err
		}
		p.section2("sluice " + strings.Join(words, " "))
		p.example(help)
	}
	p.rest(last...)
	p.common("ENVIRONMENT")
	p.common("FILES")
	p.common("EXIT STATUS")
	p.seeAlso("sluice-ctld(8)", "sluice-noded(8)", "sluice-slurm.conf(5)")
	return p, nil
}

// verbPages are the verbs of sluice with a page of their own; the others are on sluice's page.
var verbPages = []string{"budget", "explain", "gpus", "report", "up"}

// verbPage builds the page of a verb from --help of the built program: usage, paragraphs, and titled parts.
func verbPage(bin, verb string) (*page, error) {
	help, err := output(bin, "sluice", verb, "--help")
	if err != nil {
		return nil, err
	}
	verbs := cli.Verbs()
	line := verbs[slices.IndexFunc(verbs, func(v *command.Verb) bool { return v.Name == verb })].Line
	p := begin("sluice-"+verb, "", 1, line, "sluice-"+verb)
	called, help, _ := strings.Cut(help, "\n")
	p.section1("SYNOPSIS")
	p.roff.WriteString(escape(called[len("Usage: "):]) + "\n")
	p.section1("DESCRIPTION")
	options := false
	for part := range strings.SplitSeq(strings.Trim(help, "\n"), "\n\n") {
		title, text, titled := strings.Cut(part, ":\n")
		switch {
		case strings.HasPrefix(strings.TrimSpace(part), "-"):
			p.section1("OPTIONS")
			options = true
			p.example(part + "\n")
		case titled && !strings.Contains(title, "\n") && !(options && strings.HasSuffix(title, "ptions")):
			p.section1(title)
			p.example(text)
		case titled && !strings.Contains(title, "\n"):
			p.example(text)
		default:
			p.prose(part + "\n")
			p.roff.WriteString(".PP\n")
		}
	}
	p.rest(last...)
	p.common("ENVIRONMENT")
	p.common("FILES")
	p.common("EXIT STATUS")
	p.seeAlso("sluice(1)")
	return p, nil
}

func ctldPage(bin string) (*page, error) {
	return daemonPage(bin, "sluice-ctld", "slurmctld", []string{"issue", "authority", "restore"})
}

func nodedPage(bin string) (*page, error) {
	return daemonPage(bin, "sluice-noded", "slurmd", []string{"pretend"})
}

// daemonPage builds the page of a daemon from --help of the built program.
func daemonPage(bin, name, slurm string, verbs []string) (*page, error) {
	help, err := output(bin, name, "--help")
	if err != nil {
		return nil, err
	}
	parts := sections(help)
	_, line, _ := strings.Cut(strings.TrimSpace(parts["NAME"]), " - ")
	p := begin(name, slurm, 8, line, name)
	p.section1("SYNOPSIS")
	p.roff.WriteString(bold(name) + " [options]\n")
	for _, v := range verbs {
		p.roff.WriteString(".br\n" + bold(name) + " [options] " + bold(v) + " [options]\n")
	}
	about, examples, _ := strings.Cut(parts["DESCRIPTION"], "Example")
	p.section1("DESCRIPTION")
	p.prose(about)
	p.roff.WriteString(".PP\n")
	p.own("DESCRIPTION", true)
	p.section1("OPTIONS")
	if err := p.flags(parts["GLOBAL OPTIONS"]); err != nil {
		return nil, fmt.Errorf("%s --help: %w", name, err)
	}
	p.section1("COMMANDS")
	for _, v := range verbs {
		help, err := output(bin, name, v, "--help")
		if err != nil {
			return nil, err
		}
		parts := sections(help)
		p.section2(v)
		_, line, _ := strings.Cut(strings.TrimSpace(parts["NAME"]), " - ")
		p.roff.WriteString(escape(upper(line)+".") + "\n")
		about, examples, _ := strings.Cut(parts["DESCRIPTION"], "Example")
		p.prose(about)
		if err := p.flags(parts["OPTIONS"]); err != nil {
			return nil, fmt.Errorf("%s %s --help: %w", name, v, err)
		}
		p.example(shell(examples))
	}
	p.rest(last...)
	p.own("ENVIRONMENT", false)
	p.own("FILES", false)
	p.own("EXIT STATUS", false)
	p.section1("EXAMPLES")
	p.example(shell(examples))
	p.seeAlso("sluice(1)", "sluice-slurm.conf(5)")
	return p, nil
}

// shell returns the text after the word "Example" of a description, without its heading.
func shell(text string) string {
	_, text, _ = strings.Cut(text, "\n")
	var out []string
	for l := range strings.Lines(text) {
		if l = strings.TrimSpace(l); l != "" {
			out = append(out, l)
		}
	}
	return strings.Join(out, "\n") + "\n"
}

// sections splits a help text into its parts by title, without indentation.
func sections(help string) map[string]string {
	parts, title := map[string]string{}, ""
	for l := range strings.Lines(help) {
		if t := strings.TrimSuffix(l, ":\n"); t != l && strings.ToUpper(t) == t && !strings.HasPrefix(t, " ") {
			title = t
			continue
		}
		parts[title] += strings.TrimPrefix(l, "   ")
	}
	return parts
}

// flags writes options in the format of the daemons' command-line library: "--conf FILE, -f FILE   slurm.conf FILE".
func (p *page) flags(text string) error {
	for l := range strings.Lines(text) {
		l = strings.TrimSpace(l)
		if l == "" {
			continue
		}
		option, meaning, ok := strings.Cut(l, "  ")
		if !ok || !strings.HasPrefix(option, "-") {
			return fmt.Errorf("%q is not an option with what it means", l)
		}
		var names []string
		for name := range strings.SplitSeq(option, ", ") {
			word, argument, _ := strings.Cut(name, " ")
			if argument, _, _ = strings.Cut(argument, " ["); argument != "" {
				argument = " \\fI" + escapeWord(argument) + "\\fR"
			}
			names = append(names, bold(word)+argument)
		}
		meaning = strings.TrimSuffix(strings.TrimSpace(meaning), " (default: false)")
		p.term(strings.Join(names, ", "), escape(upper(meaning))+".")
	}
	return nil
}

func output(bin, name string, args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(bin, name), args...)
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w; has it been built? make build", cmd.Path, strings.Join(args, " "), err)
	}
	return string(out), nil
}

// man writes the manual pages: `go run ./deploy/man -bin bin -o DIR`, which is `make man`.
//
// Options, variables and fields come from the tables with which the commands parse their command lines, keys from those that read
// the configuration; the daemons' and sluice's verbs come from --help of the built programs. The rest is in text/, a file for
// each page: "# TITLE" starts a section, lines indented by two spaces are printed verbatim, "A :: B" is a term and its meaning,
// and `x` is bold.
//
// Pages have distinct names, such as sluice-sbatch(1) and sluice-slurm.conf(5), because Slurm's own may be installed beside them.
// DIR/links has a line for each of Slurm's names under which a page may be linked where Slurm's pages are not installed.
package main

import (
	"embed"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/client/cli"
	"github.com/sluice-hpc/sluice/internal/version"
)

//go:embed text
var texts embed.FS

func main() {
	bin := flag.String("bin", "bin", "directory of the built programs `DIR`")
	out := flag.String("o", "build/man", "directory to write to `DIR`")
	flag.Parse()
	if err := write(*bin, *out); err != nil {
		fmt.Fprintln(os.Stderr, "man:", err)
		os.Exit(1)
	}
}

// page is a manual page.
type page struct {
	name    string // installed name
	slurm   string // name of Slurm's page; "": none
	section int
	roff    strings.Builder
	text    map[string]string // sections of its file in text/, by title
	order   []string
}

func write(bin, out string) error {
	var pages []*page
	for _, c := range cli.Pages() {
		pages = append(pages, commandPage(c))
	}
	for _, make := range []func(bin string) (*page, error){sluicePage, ctldPage, nodedPage} {
		p, err := make(bin)
		if err != nil {
			return err
		}
		pages = append(pages, p)
	}
	for _, verb := range verbPages {
		p, err := verbPage(bin, verb)
		if err != nil {
			return err
		}
		pages = append(pages, p)
	}
	pages = append(pages, confPages()...)
	var links strings.Builder
	for _, p := range pages {
		file := filepath.Join(fmt.Sprintf("man%d", p.section), fmt.Sprintf("%s.%d", p.name, p.section))
		if p.slurm != "" {
			fmt.Fprintf(&links, "man%d/%s.%d %s\n", p.section, p.slurm, p.section, filepath.Base(file))
		}
		path := filepath.Join(out, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(p.roff.String()), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(out, "links"), []byte(links.String()), 0o644)
}

// begin starts a page; text is the name of its file in text/, without the suffix.
func begin(name, slurm string, section int, line, text string) *page {
	p := &page{name: name, slurm: slurm, section: section, text: map[string]string{}}
	data, err := texts.ReadFile("text/" + text + ".txt")
	if err != nil {
		panic(err) // a page without a file: TestEveryPage names it
	}
	title := ""
	for l := range strings.Lines(string(data)) {
		if t, ok := strings.CutPrefix(l, "# "); ok {
			title = strings.TrimSpace(t)
			p.order = append(p.order, title)
			continue
		}
		p.text[title] += l
	}
	fmt.Fprintf(&p.roff, ".TH %s %d \"\" \"Sluice %s\" \"Sluice\"\n", strings.ToUpper(name), section, version.Sluice)
	p.section1("NAME")
	names := name
	if slurm != "" {
		names = slurm + ", " + name
	}
	p.roff.WriteString(escape(names) + " \\- " + escape(line) + "\n")
	return p
}

func (p *page) section1(title string) {
	p.roff.WriteString(".SH " + quoted(strings.ToUpper(title)) + "\n")
}
func (p *page) section2(title string) { p.roff.WriteString(".SS " + quoted(title) + "\n") }

// own writes the sections of the page's file with the title, without the heading if a section was begun already. It returns
// whether there was one.
func (p *page) own(title string, begun bool) bool {
	text, ok := p.text[title]
	if !ok {
		return false
	}
	delete(p.text, title)
	if !begun {
		p.section1(title)
	}
	p.prose(text)
	return true
}

// rest writes the remaining sections of the file, except those that come last.
func (p *page) rest(last ...string) {
	for _, title := range p.order {
		if !slices.Contains(last, title) {
			p.own(title, false)
		}
	}
}

// prose writes a text in the format of text/.
func (p *page) prose(text string) {
	var fixed []string
	flush := func() {
		if len(fixed) > 0 {
			p.example(strings.Join(fixed, "\n") + "\n")
			fixed = nil
		}
	}
	for _, l := range strings.Split(strings.Trim(text, "\n"), "\n") {
		if strings.HasPrefix(l, "  ") {
			fixed = append(fixed, l[2:])
			continue
		}
		flush()
		if term, meaning, ok := strings.Cut(l, " :: "); ok {
			p.term(bolded(term), bolded(meaning))
		} else if strings.TrimSpace(l) == "" {
			p.roff.WriteString(".PP\n")
		} else {
			p.roff.WriteString(bolded(l) + "\n")
		}
	}
	flush()
}

// term writes a term and its meaning; both are escaped already.
func (p *page) term(term, meaning string) { p.roff.WriteString(".TP\n" + term + "\n" + meaning + "\n") }

// example writes lines verbatim.
func (p *page) example(text string) {
	p.roff.WriteString(".PP\n.EX\n")
	for l := range strings.Lines(text) {
		p.roff.WriteString(escape(strings.TrimSuffix(l, "\n")) + "\n")
	}
	p.roff.WriteString(".EE\n")
}

// bolded formats a line of text/ with `x` in bold.
func bolded(line string) string {
	var b strings.Builder
	for i, part := range strings.Split(line, "`") {
		if i%2 == 1 {
			b.WriteString("\\fB" + escapeWord(part) + "\\fR")
		} else {
			b.WriteString(escapeWord(part))
		}
	}
	return guarded(b.String())
}

// escape escapes a line for roff.
func escape(line string) string { return guarded(escapeWord(line)) }

func escapeWord(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\\':
			b.WriteString("\\e")
		case r == '-':
			b.WriteString("\\-")
		case r == '\'':
			b.WriteString("\\(aq")
		case r == '`':
			b.WriteString("\\(ga")
		case r == '^':
			b.WriteString("\\(ha")
		case r == '~':
			b.WriteString("\\(ti")
		case r > 0x7e:
			fmt.Fprintf(&b, "\\[u%04X]", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func guarded(line string) string {
	if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
		return "\\&" + line
	}
	return line
}

// quoted returns an argument of a macro.
func quoted(s string) string { return `"` + strings.ReplaceAll(escapeWord(s), `"`, `\(dq`) + `"` }

func bold(s string) string { return "\\fB" + escapeWord(s) + "\\fR" }

package compat

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// edit is a difference of whole families of lines: what is cut from or changed in the answers of one side before they are compared.
//
//	difference HEADING…
//	  on REGEXP             commands that it is about; without it, all
//	  slurm  s/RE/TEXT/     applied to what Slurm has answered
//	  sluice s/RE/TEXT/     applied to what Sluice answers
//
// HEADING is a row of docs/differences.md: its text must occur there.
type edit struct {
	why           string
	on            *regexp.Regexp
	slurm, sluice []substitution
	used          bool
}

type substitution struct {
	re *regexp.Regexp
	by string
}

func readDifferences(t *testing.T, path string) []*edit {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var list []*edit
	for n, text := range strings.Split(string(data), "\n") {
		text = strings.TrimSpace(text)
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		if why, ok := strings.CutPrefix(text, "difference "); ok {
			list = append(list, &edit{why: why})
			continue
		}
		if len(list) == 0 {
			t.Fatalf("%s:%d: no difference before this line", path, n+1)
		}
		if err := list[len(list)-1].read(text); err != nil {
			t.Fatalf("%s:%d: %v", path, n+1, err)
		}
	}
	return list
}

func (e *edit) read(text string) (err error) {
	word, rest, _ := strings.Cut(text, " ")
	rest = strings.TrimSpace(rest)
	if word == "on" {
		e.on, err = regexp.Compile(rest)
		return err
	}
	if len(rest) < 4 || rest[0] != 's' {
		return fmt.Errorf("cannot read %q", text)
	}
	parts := strings.Split(rest[2:], rest[1:2])
	if len(parts) != 3 {
		return fmt.Errorf("cannot read %q", text)
	}
	re, err := regexp.Compile("(?m)" + parts[0])
	if err != nil {
		return err
	}
	by := strings.ReplaceAll(parts[1], `\n`, "\n")
	switch word {
	case "slurm":
		e.slurm = append(e.slurm, substitution{re, by})
	case "sluice":
		e.sluice = append(e.sluice, substitution{re, by})
	default:
		return fmt.Errorf("cannot read %q", text)
	}
	return nil
}

// reconcile applies the edits to both answers.
func reconcile(edits []*edit, slurm, sluice answer) (answer, answer) {
	for _, e := range edits {
		if e.on != nil && !e.on.MatchString(slurm.command) {
			continue
		}
		a, b := slurm.edited(e.slurm), sluice.edited(e.sluice)
		if !a.same(slurm) || !b.same(sluice) {
			e.used = true
		}
		slurm, sluice = a, b
	}
	return slurm, sluice
}

func (a answer) edited(list []substitution) answer {
	for _, s := range list {
		a.stdout = s.re.ReplaceAllString(a.stdout, s.by)
		a.stderr = s.re.ReplaceAllString(a.stderr, s.by)
	}
	return a
}

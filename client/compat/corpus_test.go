package compat

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestCorpus types every script at Sluice and compares the answers with those of the real Slurm. With -record it asks the real one
// instead; with -update it keeps what differs in NAME.sluice.
func TestCorpus(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(*corpus, "*.txtar"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no corpus: %v", err)
	}
	sys := theSystem(t)
	edits := readDifferences(t, "testdata/differences")
	scripts, commands := 0, 0
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".txtar")
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			s, err := parseScript(name, data)
			if err != nil {
				t.Fatal(err)
			}
			answers := sys.play(t, s)
			scripts++
			commands += len(answers)
			kept := strings.TrimSuffix(path, ".txtar")
			if t.Failed() {
				return
			}
			if *recording {
				keep(t, kept+".slurm", answers)
				return
			}
			compare(t, kept, edits, answers)
		})
	}
	if t.Failed() || *recording || *updating || scripts < len(paths) {
		return
	}
	t.Logf("%d commands in %d scripts", commands, scripts)
	for _, e := range edits {
		if !e.used && *corpus == flag.Lookup("corpus").DefValue {
			t.Errorf("testdata/differences: %q changes nothing any more", e.why)
		}
	}
}

// theSystem is the cluster that the corpus is typed at.
func theSystem(t *testing.T) *system {
	t.Helper()
	if !*recording {
		return sluice(t)
	}
	conf := os.Getenv("SLURM_CONF")
	if conf == "" {
		t.Fatal("-record needs SLURM_CONF of a real Slurm: make oracle")
	}
	return &system{data: filepath.Dir(conf), cluster: recordedName, env: []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
		"SLURM_CONF=" + conf}}
}

func keep(t *testing.T, path string, answers []answer) {
	t.Helper()
	if len(answers) == 0 {
		_ = os.Remove(path)
		return
	}
	var b bytes.Buffer
	for _, a := range answers {
		a.print(&b)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// compare holds Sluice's answers against those kept of Slurm, and against the listed differences.
func compare(t *testing.T, kept string, edits []*edit, answers []answer) {
	t.Helper()
	slurm := read(t, kept+".slurm")
	listed := map[string]answer{}
	for _, a := range read(t, kept+".sluice") {
		listed[a.command] = a
	}
	if len(slurm) != len(answers) {
		t.Fatalf("%s.slurm has %d answers, the script %d commands: make oracle records it again", kept, len(slurm), len(answers))
	}
	var differ []answer
	for i, got := range answers {
		want := slurm[i]
		if want.command != got.command {
			t.Fatalf("%s.slurm answers %q where the script has %q: make oracle records it again", kept, want.command, got.command)
		}
		known, isKnown := listed[got.command]
		w, g := reconcile(edits, want, got)
		if w.same(g) || g.explains(w) {
			if isKnown && !*updating {
				t.Errorf("%s.sluice lists %q, whose answer is Slurm's by now", kept, got.command)
			}
			continue
		}
		got.why = known.why
		differ = append(differ, got)
		switch {
		case *updating:
		case !isKnown:
			t.Errorf("%s: not what Slurm answers\n%s", kept, sideBySide(w, g))
		case !known.same(got):
			t.Errorf("%s: neither what Slurm answers nor what is listed\n%s", kept, sideBySide(known, got))
		}
	}
	if *updating {
		keep(t, kept+".sluice", differ)
	}
}

func read(t *testing.T, path string) []answer {
	t.Helper()
	list, err := readAnswers(path)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// sideBySide shows the lines that only one side has.
func sideBySide(want, got answer) string {
	var b strings.Builder
	fmt.Fprintf(&b, "$ %s\n", want.command)
	only(&b, "1", want.stdout, got.stdout)
	only(&b, "2", want.stderr, got.stderr)
	if want.exit != got.exit {
		fmt.Fprintf(&b, " -  = %d\n +  = %d\n", want.exit, got.exit)
	}
	return b.String()
}

// only prints the lines that one side has and the other has not, in order.
func only(b *strings.Builder, stream, want, got string) {
	w, g := lines(want), lines(got)
	for len(w) > 0 || len(g) > 0 {
		switch {
		case len(w) > 0 && len(g) > 0 && w[0] == g[0]:
			w, g = w[1:], g[1:]
		case len(w) > 0 && !slices.Contains(g, w[0]) || len(g) == 0:
			fmt.Fprintf(b, " - %s> %s\n", stream, w[0])
			w = w[1:]
		default:
			fmt.Fprintf(b, " + %s> %s\n", stream, g[0])
			g = g[1:]
		}
	}
}

// lines cuts a text into its lines; a last one without an end is marked.
func lines(text string) []string {
	if text == "" {
		return nil
	}
	if !strings.HasSuffix(text, "\n") {
		text += "[no newline]\n"
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

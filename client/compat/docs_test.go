package compat

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDifferencesAreDocumented holds what the comparison lists and docs/differences.md together: each difference stands under a row of
// its table, and each row is needed by one.
func TestDifferencesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/differences.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), "## Command by command\n")
	if !ok {
		t.Fatal(`docs/differences.md has no section "Command by command"`)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	rows := map[string]bool{} // whether a difference needs it
	for line := range strings.Lines(section) {
		if cells := strings.Split(line, "|"); len(cells) > 2 && !strings.HasPrefix(cells[1], "---") && cells[1] != " difference " {
			rows[strings.TrimSpace(cells[1])] = false
		}
	}
	rows[find(rows, "Refusals explain themselves")] = true // what the comparison allows of every refusal
	need := func(where, why string) {
		row := find(rows, why)
		if why == "" || row == "" {
			t.Errorf("%s: the reason %q begins no row of docs/differences.md", where, why)
			return
		}
		rows[row] = true
	}
	paths, _ := filepath.Glob("testdata/*/*.sluice")
	for _, path := range paths {
		for _, a := range read(t, path) {
			need(path+": "+a.command, a.why)
		}
	}
	for _, e := range readDifferences(t, "testdata/differences") {
		if !strings.Contains(string(text), e.why) {
			t.Errorf("testdata/differences: %q is not in docs/differences.md", e.why)
		}
		if row := find(rows, e.why); row != "" {
			rows[row] = true
		}
	}
	for row, needed := range rows {
		if !needed {
			t.Errorf("docs/differences.md: no difference needs the row %q", row)
		}
	}
}

// find gives the row that begins with a reason.
func find(rows map[string]bool, why string) string {
	for row := range rows {
		if strings.HasPrefix(row, why) {
			return row
		}
	}
	return ""
}

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/client/cli"
	"github.com/sluice-hpc/sluice/conf"
)

// made are the pages, written once: by what the build makes of this tree.
func made(t *testing.T) string {
	t.Helper()
	bin, out := t.TempDir(), t.TempDir()
	build := exec.Command("go", "build", "-tags", "urfave_cli_no_docs", "-o", bin+"/", "../../cmd/sluice", "../../cmd/sluice-ctld",
		"../../cmd/sluice-noded")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if err := write(bin, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// plain is a page without the marks of roff.
func plain(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`\\f[BIR]`).ReplaceAllString(strings.ReplaceAll(string(data), "\\-", "-"), "")
}

// TestPages: every command, option, variable and key has its place in the pages, and man's own programs find no fault with them.
func TestPages(t *testing.T) {
	out := made(t)
	for _, c := range cli.Pages() {
		text := plain(t, filepath.Join(out, "man1", "sluice-"+c.Name+".1"))
		for _, o := range c.Options {
			if o.Long != "" && !strings.Contains(text, "--"+o.Long) {
				t.Errorf("the page of %s lacks --%s", c.Name, o.Long)
			}
			if o.Short != 0 && o.Help != "" && !strings.Contains(text, "\n-"+string(rune(o.Short))+", ") {
				t.Errorf("the page of %s lacks -%c", c.Name, o.Short)
			}
		}
		for _, title := range []string{"DESCRIPTION", "OPTIONS", "ENVIRONMENT", "FILES", "EXIT STATUS", "SEE ALSO"} {
			if !strings.Contains(text, ".SH \""+title+"\"\n") {
				t.Errorf("the page of %s has no section %s", c.Name, title)
			}
		}
	}
	for _, verb := range verbPages {
		text := plain(t, filepath.Join(out, "man1", "sluice-"+verb+".1"))
		for _, part := range []string{".SH \"SYNOPSIS\"\nsluice " + verb, ".SH \"DESCRIPTION\"\n", ".SH \"SEE ALSO\"\n"} {
			if !strings.Contains(text, part) {
				t.Errorf("the page of sluice %s has no %q", verb, part)
			}
		}
	}
	pages := map[string]string{"slurm.conf": "slurm.conf", "NodeName lines": "slurm.conf", "PartitionName lines": "slurm.conf",
		"NodeSet lines": "slurm.conf", "DownNodes lines": "slurm.conf", "topology.conf, SwitchName lines": "topology.conf"}
	for _, table := range conf.KeyTables() {
		name := pages[table.Title]
		if name == "" {
			name = table.Title
		}
		text := plain(t, filepath.Join(out, "man5", "sluice-"+name+".5"))
		for _, k := range table.Keys {
			if !strings.Contains(text, "\n"+k.Name+"\n") {
				t.Errorf("the page of %s lacks the key %s", name, k.Name)
			}
		}
	}
	noded := plain(t, filepath.Join(out, "man8", "sluice-noded.8"))
	for _, flag := range []string{"--conf-server", "--dynamic", "--join", "--one-address"} {
		if !strings.Contains(noded, flag) {
			t.Errorf("the page of sluice-noded lacks %s", flag)
		}
	}
	files, _ := filepath.Glob(filepath.Join(out, "man?", "*"))
	if len(files) < 20 {
		t.Fatalf("there are only %d pages", len(files))
	}
	check(t, "groff", files, func(file string) (string, bool) {
		text, err := exec.Command("groff", "-man", "-ww", "-z", "-K", "ascii", file).CombinedOutput()
		return string(text), err == nil && len(text) == 0
	})
	check(t, "lexgrog", files, func(file string) (string, bool) {
		cmd := exec.Command("lexgrog", file)
		cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
		text, err := cmd.CombinedOutput()
		name := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
		return string(text), err == nil && bytes.Contains(text, []byte(": \""+name+" - "))
	})
}

func check(t *testing.T, program string, files []string, fine func(string) (string, bool)) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Logf("not checked with %s, which is not here; install groff and man-db", program)
		return
	}
	for _, f := range files {
		if text, ok := fine(f); !ok {
			t.Errorf("%s of %s: %s", program, filepath.Base(f), text)
		}
	}
}

// TestEscapes: nothing that stands in a text is a command to roff.
func TestEscapes(t *testing.T) {
	for text, want := range map[string]string{".so /etc/passwd": "\\&.so /etc/passwd", "a\\b": "a\\eb",
		"--x": "\\-\\-x", "'x'": "\\(aqx\\(aq",
		"…": "\\[u2026]"} {
		if got := escape(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

package packages_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestVersionOfPrograms: programs have the version of their packages, also where VERSION gives another than the tree has.
func TestVersionOfPrograms(t *testing.T) {
	dir := t.TempDir()
	// It builds the first program, has it say its version, and goes no further.
	stub := "#!/bin/sh\ncase $* in *' ./cmd/sluice') ;; *) exec go \"$@\" ;; esac\ngo \"$@\" || exit 1\nwhile [ \"$1\" != -o ]; do shift; done\n" +
		"\"$2/sluice\" --version >" + dir + "/said\nexit 1\n"
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte(stub), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("./build", filepath.Join(dir, "out"))
	cmd.Env = append(os.Environ(), "VERSION=9.8.7", "GO="+filepath.Join(dir, "go"))
	out, _ := cmd.CombinedOutput()
	said, err := os.ReadFile(filepath.Join(dir, "said"))
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if !strings.Contains(string(said), "sluice 9.8.7\n") {
		t.Errorf("a program of VERSION=9.8.7 says %q", said)
	}
}

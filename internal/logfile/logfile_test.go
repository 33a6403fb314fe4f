package logfile

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestRotate: after the file was moved away and Reopen, what comes goes into a new file, from this process and from its children.
func TestRotate(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "d.log")
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	say := func(s string) {
		t.Helper()
		if _, err := l.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	child := func(s string) {
		t.Helper()
		cmd := exec.Command("echo", s)
		cmd.Stdout = l.File()
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
	}
	say("a\n")
	child("b")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	say("c\n")
	if err := l.Reopen(path); err != nil {
		t.Fatal(err)
	}
	say("d\n")
	child("e")
	if got := read(t, path+".1"); got != "a\nb\nc\n" {
		t.Errorf("the old log has %q", got)
	}
	if got := read(t, path); got != "d\ne\n" {
		t.Errorf("the new log has %q", got)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the new log has mode %v (%v), want 0600", info.Mode(), err)
	}
}

// TestFailedReopen leaves the log where it was: a daemon whose configuration has a misspelt folder must not fall silent.
func TestFailedReopen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d.log")
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Reopen(filepath.Join(path, "none", "d.log")); err == nil {
		t.Error("a log in a folder that is not there was opened")
	}
	if _, err := l.Write([]byte("on\n")); err != nil || read(t, path) != "on\n" {
		t.Errorf("the log does not go on: %v", err)
	}
}

// TestNoLineIsLost: writers do not notice that the file is replaced.
func TestNoLineIsLost(t *testing.T) {
	dir := t.TempDir()
	l, err := Open(filepath.Join(dir, "0"))
	if err != nil {
		t.Fatal(err)
	}
	const lines = 2000
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range lines {
				if n, err := l.Write([]byte("line\n")); n != 5 || err != nil {
					t.Error(n, err)
				}
			}
		})
	}
	for i := range 100 {
		if err := l.Reopen(filepath.Join(dir, string(rune('a'+i%20)))); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	total := 0
	for _, f := range files {
		total += len(read(t, f))
	}
	if total != 4*lines*5 {
		t.Errorf("%d bytes arrived of %d", total, 4*lines*5)
	}
}

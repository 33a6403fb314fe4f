package stepd

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPaths opens paths in both ways, and compares them with what open(2) makes of them where that asks nothing of procfs.
func TestPaths(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return dir + "/" + name }
	for _, err := range []error{
		os.MkdirAll(at("d/e"), 0o755), os.WriteFile(at("d/f"), []byte("f"), 0o600), os.Symlink("d", at("rel")),
		os.Symlink(at("d/e"), at("abs")), os.Symlink("../f", at("d/e/up")), os.Symlink("loop", at("loop")),
		os.Symlink("d/new", at("dangling")), os.Symlink("d/", at("slash")), os.Symlink("/", at("top")),
		os.Symlink("/proc/self", at("self")), os.Symlink("/proc/self/fd/0", at("in")),
		os.Symlink("no/such", at("nowhere")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	const create = unix.O_WRONLY | unix.O_CREAT
	for _, c := range []struct {
		path  string
		flags int
		proc  bool // leads through procfs
	}{
		{path: at("d/f")}, {path: at("rel/f")}, {path: at("abs/up")}, {path: at("abs/../f")}, {path: at("rel/../d/./f")},
		{path: at("slash/f")},
		{path: at("loop")}, {path: at("loop/x")}, {path: at("no/f")}, {path: at("d/f/x")}, {path: at("d/f/")},
		{path: at("d//f")},
		{path: at("d"), flags: unix.O_DIRECTORY}, {path: at("d/"), flags: unix.O_DIRECTORY}, {path: "/", flags: unix.O_DIRECTORY},
		{path: at("abs/.."), flags: unix.O_DIRECTORY}, {path: at("top"), flags: unix.O_DIRECTORY}, {path: at("top") + at("d/f")},
		{path: at("d/new"), flags: create}, {path: at("dangling"), flags: create}, {path: at("nowhere"), flags: create},
		{path: at("d"), flags: create}, {path: at("e/"), flags: create}, {path: "/dev/null", flags: create}, {path: ""}, {path: "/.."},
		{path: at("in"), proc: true}, {path: at("self/cwd"), proc: true}, {path: at("self/root") + at("d/f"), proc: true},
		{path: "/proc/self/fd/0", proc: true}, {path: "/proc/thread-self/fd/0", proc: true}, {path: "/dev/fd/0", proc: true},
		{path: at("../../../../../../../../proc/self/exe"), proc: true},
		{path: strings.Repeat("/tmp/..", 50) + "/proc/self/exe", proc: true},
	} {
		for name, open := range map[string]func(string, int, uint32) (int, error){"openat2": openPath, "one by one": openOnFoot} {
			os.Remove(at("d/new"))
			want, wantErr := unix.Open(c.path, c.flags|unix.O_CLOEXEC, 0o600)
			os.Remove(at("d/new"))
			got, err := open(c.path, c.flags|unix.O_CLOEXEC, 0o600)
			switch {
			case c.proc:
				if !errors.Is(err, errInProc) {
					t.Errorf("%s: %s: %v, want that it is refused", name, c.path, err)
				}
			case err != wantErr || err == nil && !same(t, got, want):
				t.Errorf("%s: %s: %v, open(2) says %v", name, c.path, err, wantErr)
			}
			unix.Close(got)
			unix.Close(want)
		}
	}
}

// same is true of files that are one, or that were both made by the test in the same place.
func same(t *testing.T, a, b int) bool {
	var x, y unix.Stat_t
	if err := errors.Join(unix.Fstat(a, &x), unix.Fstat(b, &y)); err != nil {
		t.Fatal(err)
	}
	return x.Dev == y.Dev && (x.Ino == y.Ino || y.Nlink == 0) && x.Mode == y.Mode
}

// TestNear: the shim itself waits for the execve of the system's programs alone.
func TestNear(t *testing.T) {
	dir := t.TempDir()
	script := func(first string) string {
		path := filepath.Join(dir, "script")
		if err := os.WriteFile(path, []byte(first+"\necho\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for first, want := range map[string]bool{
		"#!/bin/sh": true, "#! /usr/bin/env python3": true, "#!\t/bin/bash -e": true, "#!/sbin/sh": true,
		"#!/usr/bin/x\x00/../../../home/u/sh": true, // the kernel ends there, too
		"#!/usr/bin/x\v/../../../home/u/sh":   false,
		"#!/home/u/python":                    false, "#!/usr/local/bin/python": false,
		"#!/usr/../home/u/sh": false, "#!/bin/../home/u/sh": false,
		"#!//home/u/sh": false, "#!": false, "#! ": false, "\x7fELF": false, "#!sh": false, "#!/usr/bin/": false, "#!/usr/bin/..": false,
		"#!/usr/tmp/sh": false,
	} {
		if got := near(script(first), true); got != want {
			t.Errorf("%q: %v", first, got)
		}
	}
	for path, want := range map[string]bool{
		"/usr/bin/true": true, "/home/u/a.out": false, "/usr/local/x": false, "/usr/bin/../../home/x": false,
	} {
		if got := near(path, false); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}

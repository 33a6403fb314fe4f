package trusted

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPath: as root, with files of another user between those of root.
func TestPath(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make files of other users")
	}
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	mkdir := func(name string, mode os.FileMode, uid int) {
		t.Helper()
		p := filepath.Join(dir, name)
		must(os.Mkdir(p, 0o755))
		must(os.Chown(p, uid, 0))
		must(os.Chmod(p, mode))
	}
	file := func(name string, mode os.FileMode, uid, gid int) {
		t.Helper()
		p := filepath.Join(dir, name)
		must(os.WriteFile(p, []byte("#!/bin/sh\n"), 0o755))
		must(os.Chown(p, uid, gid))
		must(os.Chmod(p, mode))
	}
	link := func(target, name string, uid int) {
		t.Helper()
		p := filepath.Join(dir, name)
		must(os.Symlink(target, p))
		must(os.Lchown(p, uid, 0))
	}
	const user = 4711
	mkdir("good", 0o755, 0)
	file("good/prolog", 0o755, 0, 0)
	file("good/group0", 0o775, 0, 0)
	file("good/group", 0o775, 0, user)
	file("good/all", 0o777, 0, 0)
	file("good/users", 0o755, user, 0)
	mkdir("sticky", 0o777|os.ModeSticky, 0)
	file("sticky/prolog", 0o755, 0, 0)
	link("../good/prolog", "sticky/users", user)
	link("../good/prolog", "sticky/roots", 0)
	file("sticky/one", 0o755, 0, 0)
	must(os.Link(filepath.Join(dir, "sticky/one"), filepath.Join(dir, "sticky/two")))
	must(os.Link(filepath.Join(dir, "sticky/one"), filepath.Join(dir, "good/three")))
	link("../sticky/two", "good/linked", 0)
	mkdir("open", 0o777, 0)
	file("open/prolog", 0o755, 0, 0)
	mkdir("home", 0o755, user)
	file("home/prolog", 0o755, 0, 0)
	link("home", "way", 0)
	link(filepath.Join(dir, "good"), "abs", 0)
	link("loop", "loop", 0)
	link("../home/../good/prolog", "good/detour", 0)
	for _, c := range []struct{ path, want string }{
		{"good/prolog", ""}, {"good/group0", ""}, {"sticky/prolog", ""}, {"sticky/roots", ""}, {"abs/prolog", ""},
		{"good/../good/prolog", ""},
		{"sticky/one", "has 3 names"}, {"sticky/two", "has 3 names"}, {"good/linked", "has 3 names"},
		{"good/three", ""}, // nobody else has made a link there
		{"good/group", "writable by group 4711"},
		{"good/all", "writable by everybody"},
		{"good/users", "belongs to uid 4711"},
		{"sticky/users", "belongs to uid 4711"},
		{"open/prolog", "writable by everybody"},
		{"home/prolog", "belongs to uid 4711"},
		{"way/prolog", "belongs to uid 4711"},
		{"good/detour", "belongs to uid 4711"},
		{"loop", "too many levels"},
		{"good/missing", "no such file"},
	} {
		real, err := Path(filepath.Join(dir, c.path))
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.path, err)
		case c.want == "" && !strings.HasSuffix(real, "/prolog") && !strings.HasSuffix(real, "/three") &&
			!strings.HasSuffix(real, "/group0"):
			t.Errorf("%s leads to %s", c.path, real)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", c.path, err, c.want)
		}
	}
	if _, err := Path(filepath.Join(dir, "home/prolog"), user); err != nil {
		t.Errorf("a trusted owner: %v", err)
	}
	if _, err := Path("good/prolog"); err == nil {
		t.Error("a relative path is accepted")
	}
}

package passwd

import (
	"strings"
	"testing"
)

func TestExpandHome(t *testing.T) {
	root, ok := User("root")
	if !ok {
		t.Fatal("there is no user root")
	}
	t.Setenv("HOME", "/home/some one/")
	for path, want := range map[string]string{
		"":            "",
		"x":           "x",
		"/a/~/b":      "/a/~/b",
		"./~/b":       "./~/b",
		`\~/b`:        `\~/b`,
		"~":           "/home/some one",
		"~/":          "/home/some one/",
		"~/x-%j.out":  "/home/some one/x-%j.out",
		"~root":       root.Home,
		"~root/a/b~c": root.Home + "/a/b~c",
	} {
		if got, err := ExpandHome(path); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", path, got, err, want)
		}
	}
	if got, err := ExpandHome("~no.such.user/x"); err == nil || !strings.Contains(err.Error(),
		"no user no.such.user; write ./~no.such.user/x") {
		t.Errorf("a user who is not there: %q, %v", got, err)
	}
	// A number is a name here, as in a shell.
	if got, err := ExpandHome("~0/x"); err == nil {
		t.Errorf("~0/x is %q", got)
	}
	t.Setenv("HOME", "")
	if got, err := ExpandHome("~/x"); err != nil || got != Self().Home+"/x" && Self().Home != "/" {
		t.Errorf("without HOME: %q, %v", got, err)
	}
}

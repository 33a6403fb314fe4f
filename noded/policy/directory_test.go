package policy

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDirectoryThatDoesNotAnswer: that users and groups cannot be looked up is no reason to refuse a job, but one to take no more of them.
func TestDirectoryThatDoesNotAnswer(t *testing.T) {
	bin := t.TempDir()
	getent := func(script string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(bin, "new"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(bin, "new"), filepath.Join(bin, "getent")); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	const knows = `case "$1 $3" in
"passwd 654321") echo 'ldapalice:*:654321:654321:Alice:/:/bin/sh' ;;
"initgroups ldapalice") [ -e ` + "$0.nogroups" + ` ] && exit 3; echo 'ldapalice 654321 44' ;;
*) exit 2 ;;
esac
`
	j := &Judge{Policy: Default()}
	user := func(groups ...uint32) error { return j.User(654321, 654321, groups) }
	fault := func(want string) {
		t.Helper()
		if why := j.Fault(); (want == "") != (why == "") || !strings.Contains(why, want) {
			t.Errorf("the fault of the node is %q, want %q", why, want)
		}
	}
	later := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, ErrLater) {
			t.Errorf("%s: %v, want a reason to try again", what, err)
		}
	}
	getent("exit 3\n")
	later("it fails", user())
	fault("name service")
	getent("kill -9 $$\n")
	later("it is killed", user())
	fault("name service")
	getent(knows)
	noGroups := filepath.Join(bin, "getent.nogroups")
	if err := os.WriteFile(noGroups, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	later("it fails for groups alone", user(44))
	fault("name service")
	if err := os.Remove(noGroups); err != nil {
		t.Fatal(err)
	}
	fault("")
	refused(t, "a group of his", user(44), "")
	refused(t, "a group of others", user(45), "not in group 45")
	j.known = nil // a minute later
	getent("exit 2\n")
	later("it does not find a user whom it has found", user())
	refused(t, "nobody", j.User(654322, 654322, nil), "has no account")
	fault("")
}

package passwd

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestDirectory: who is in no file of this machine comes from its name service, as getent(1) tells it.
func TestDirectory(t *testing.T) {
	bin := t.TempDir()
	const getent = `#!/bin/sh
case "$1 $3" in
"passwd ldapalice" | "passwd 654321") echo 'ldapalice:*:654321:654322:Alice:/home/alice:/bin/zsh' ;;
"group ldaplab" | "group 654323") echo 'ldaplab:*:654323:ldapalice,ldapbob' ;;
"initgroups ldapalice") echo 'ldapalice            654322 654323' ;;
*) exit 2 ;;
esac
`
	if err := os.WriteFile(filepath.Join(bin, "getent"), []byte(getent), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	want := Account{Name: "ldapalice", Gecos: "Alice", Home: "/home/alice", Shell: "/bin/zsh", UID: 654321, GID: 654322}
	for _, who := range []string{"ldapalice", "654321"} {
		if a, ok := User(who); !ok || a != want {
			t.Errorf("%s: %+v %v", who, a, ok)
		}
	}
	for _, which := range []string{"ldaplab", "654323"} {
		if name, gid, ok := Group(which); !ok || name != "ldaplab" || gid != 654323 {
			t.Errorf("%s: %s %d %v", which, name, gid, ok)
		}
	}
	if got := Groups(want); !slices.Equal(got, []uint32{654322, 654323}) {
		t.Errorf("groups %d", got)
	}
	if a, ok := User("ldapcarol"); ok {
		t.Errorf("ldapcarol: %+v", a)
	}
	if gid, ok := GID("77777"); !ok || gid != 77777 || GroupName(77777) != "" {
		t.Errorf("a number that no group has: %d %v %q", gid, ok, GroupName(77777))
	}
	if root, ok := User("0"); !ok || root.Name != "root" || !slices.Contains(Groups(root), 0) {
		t.Errorf("root: %+v %v", root, ok)
	}
}

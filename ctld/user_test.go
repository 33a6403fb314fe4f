package ctld

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/sluice-hpc/sluice/internal/passwd"
)

// TestStateInAFolderOfSlurmUser: root makes nothing there, and takes an empty directory away that is root's; one with contents stays.
func TestStateInAFolderOfSlurmUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	const uid = 65534
	home, err := os.MkdirTemp("/tmp", "slurmuser") // its parents let everybody pass
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	if err := os.Chown(home, uid, uid); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(home, "state")
	u := passwd.Account{Name: "nobody", UID: uid, GID: uid}
	for _, before := range []string{"nothing", "an empty root-owned directory"} {
		if err := giveState(dir, u); err != nil {
			t.Errorf("%s: %v", before, err)
		}
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: root has made, or left, %s: %v", before, dir, err)
		}
		_ = os.Mkdir(dir, 0o700)
	}
	if err := os.WriteFile(filepath.Join(dir, "state.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := giveState(dir, u); err == nil {
		t.Error("a root-owned directory that SlurmUser can replace is given away")
	}
	if _, err := os.Lstat(filepath.Join(dir, "state.db")); err != nil {
		t.Error(err)
	}
}

// inHome runs a test as root in a folder that everybody can reach.
func inHome(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	home, err := os.MkdirTemp("/tmp", "slurmuser")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	if err := os.Chmod(home, 0o755); err != nil {
		t.Fatal(err)
	}
	return home
}

// TestLogInAFolderOfAGroup: a group may write to the folder, as in /var/log on Ubuntu. There, a log that root creates is given to
// SlurmUser, but an old file of root's may be anything and stays root's. In a folder that only root can change, an old file is given away
// too.
func TestLogInAFolderOfAGroup(t *testing.T) {
	home := inHome(t)
	u := passwd.Account{Name: "nobody", UID: 65534, GID: 65534}
	owner := func(path string) uint32 {
		fi, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		return fi.Sys().(*syscall.Stat_t).Uid
	}
	for _, group := range []bool{true, false} {
		dir := filepath.Join(home, fmt.Sprint(group))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if group {
			if err := errors.Join(os.Chown(dir, 0, 65533), os.Chmod(dir, 0o775)); err != nil {
				t.Fatal(err)
			}
		}
		log, old, link := filepath.Join(dir, "new.log"), filepath.Join(dir, "old.log"), filepath.Join(dir, "link.log")
		if err := errors.Join(os.WriteFile(old, nil, 0o600), os.Symlink(old, link)); err != nil {
			t.Fatal(err)
		}
		for range 2 { // and when it is there already
			if err := giveLog(log, 0o600, u); err != nil || owner(log) != u.UID {
				t.Errorf("group %v: uid %d, %v", group, owner(log), err)
			}
		}
		if err := giveLog(link, 0o600, u); err == nil || owner(old) != 0 {
			t.Errorf("group %v: a link is followed", group)
		}
		if err := giveLog(old, 0o600, u); group != (err != nil) || group != (owner(old) == 0) {
			t.Errorf("group %v: the old log is of uid %d: %v", group, owner(old), err)
		}
	}
}

// TestSocketInAFolderOfSlurmUser: root is not led elsewhere by what SlurmUser has put in its way.
func TestSocketInAFolderOfSlurmUser(t *testing.T) {
	home := inHome(t)
	const uid = 65534
	mine, victim := filepath.Join(home, "mine"), filepath.Join(home, "victim")
	if err := errors.Join(os.Mkdir(mine, 0o755), os.Chown(mine, uid, uid), os.Mkdir(victim, 0o755),
		os.WriteFile(filepath.Join(victim, "ctld.sock"), nil, 0o600), os.Symlink(victim, filepath.Join(mine, "run"))); err != nil {
		t.Fatal(err)
	}
	for path, leads := range map[string]bool{"run/ctld.sock": false, "run/sub/ctld.sock": false, "ctld.sock": true, "a/b/ctld.sock": true} {
		d := &daemon{opts: Options{Drop: true, Socket: filepath.Join(mine, path)}}
		l, err := d.listenLocal(fmt.Sprint(uid))
		if leads != (err == nil) {
			t.Errorf("%s: %v", path, err)
		}
		if err == nil {
			fi, err := os.Lstat(d.opts.Socket)
			if err != nil || fi.Sys().(*syscall.Stat_t).Uid != uid {
				t.Errorf("%s is not SlurmUser's: %v", path, err)
			}
			_ = l.Close()
		}
	}
	if list, err := os.ReadDir(victim); err != nil || len(list) != 1 || !list[0].Type().IsRegular() {
		t.Errorf("root was led elsewhere: %v, %v", list, err)
	}
	if onlyRootChanges(filepath.Join(mine, "x")) || !onlyRootChanges("/usr/nothing/there/x") || onlyRootChanges("/tmp/x") {
		t.Error("who can change a path")
	}
}

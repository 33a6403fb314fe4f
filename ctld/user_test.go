package ctld

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-hpc/sluice/conf/accounts"
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
	u := accounts.Account{Name: "nobody", UID: uid, GID: uid}
	for _, before := range []string{"nothing", "an empty directory of root's"} {
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
		t.Error("a directory of root's that SlurmUser can replace is given away")
	}
	if _, err := os.Lstat(filepath.Join(dir, "state.db")); err != nil {
		t.Error(err)
	}
}

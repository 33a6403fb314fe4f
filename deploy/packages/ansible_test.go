package packages_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestAnsiblePackage: the package for Ansible has all files of the collection and what its role for monitoring installs, and nothing else.
func TestAnsiblePackage(t *testing.T) {
	need(t, "dpkg-deb", "git")
	const prefix = "usr/share/sluice/"
	list, err := exec.Command("git", "-C", "..", "-c", "safe.directory=*", "ls-files", "-z", "ansible", "monitoring").Output()
	if err != nil {
		t.Skip("git does not say which files the collection has: ", err)
	}
	root := t.TempDir()
	run(t, "dpkg-deb", "-x", files(t, "sluice-ansible_*_all.deb")[0], root)
	there := map[string]bool{}
	if err := filepath.WalkDir(filepath.Join(root, prefix), func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			there[strings.TrimPrefix(path, filepath.Join(root, prefix)+"/")] = true
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		if strings.HasPrefix(name, "ansible/clustertest/") || strings.HasPrefix(name, "ansible/roletest/") ||
			strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.yml") {
			continue // tests
		}
		read := os.ReadFile
		if fi, err := os.Lstat(filepath.Join("..", name)); err == nil && fi.Mode()&os.ModeSymlink != 0 {
			read = func(path string) ([]byte, error) {
				to, err := os.Readlink(path)
				return []byte(to), err
			}
		}
		want, err := read(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := read(filepath.Join(root, prefix, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not in the package as it is here: %v", name, err)
		}
		delete(there, name)
	}
	for name := range there {
		t.Errorf("the package has %s, which the collection has not", name)
	}
}

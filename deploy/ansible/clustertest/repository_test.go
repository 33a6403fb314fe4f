package clustertest

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// serve makes a repository of the packages in a folder, with which a later call replaces them, and gives its line for sources.list.
func (b *bed) serve(debs string) string {
	b.t.Helper()
	dir := filepath.Join(b.dir, "repository")
	if err := os.Mkdir(dir, 0o755); err == nil {
		cmd := b.inside("python3", "-m", "http.server", "--bind", outside, "--directory", dir, "8000")
		done := start(b.t, cmd)
		b.t.Cleanup(func() { _ = cmd.Process.Kill(); <-done })
	}
	old, _ := filepath.Glob(filepath.Join(dir, "*.deb"))
	for _, deb := range old {
		b.must(os.Remove(deb))
	}
	found, _ := filepath.Glob(filepath.Join(debs, "*.deb"))
	var index strings.Builder
	for _, deb := range found {
		text, err := os.ReadFile(deb)
		b.must(err)
		control, err := exec.Command("dpkg-deb", "--field", deb).Output()
		b.must(err)
		b.must(os.WriteFile(filepath.Join(dir, filepath.Base(deb)), text, 0o644))
		fmt.Fprintf(&index, "%s\nFilename: ./%s\nSize: %d\nSHA256: %x\n\n", strings.TrimSpace(string(control)), filepath.Base(deb),
			len(text), sha256.Sum256(text))
	}
	b.must(os.WriteFile(filepath.Join(dir, "Packages"), []byte(index.String()), 0o644))
	return "deb [trusted=yes] http://" + outside + ":8000 ./"
}

// twoArchitectures gives a folder with the packages, and beside them some of the same names that no host here can use.
func twoArchitectures(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	found, _ := filepath.Glob(filepath.Join(*packages, "*.deb"))
	for _, deb := range found {
		deb, err := filepath.Abs(deb)
		if err == nil {
			err = os.Symlink(deb, filepath.Join(dir, filepath.Base(deb)))
		}
		if err != nil {
			t.Fatal(err)
		}
		script := `mkdir -p "$1/DEBIAN" && dpkg-deb --field "$2" Package Version Maintainer Description >"$1/DEBIAN/control" &&
			echo "Architecture: riscv64" >>"$1/DEBIAN/control" && dpkg-deb -Znone --root-owner-group -b "$1" "$3"`
		if out, err := exec.Command("sh", "-c", script, "sh", t.TempDir(), deb, dir).CombinedOutput(); err != nil {
			t.Fatalf("cannot make a package of another architecture: %s", out)
		}
	}
	return dir
}

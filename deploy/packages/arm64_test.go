package packages_test

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// cross is the C compiler for arm64 of a machine that is none, and what runs programs for arm64 there, with the libraries of crossLib.
const (
	cross    = "aarch64-linux-gnu-gcc"
	crossLib = "/usr/aarch64-linux-gnu"
	qemu     = "qemu-aarch64-static"
)

// TestArm64: the packages for arm64 that another machine builds have the same files as its own, with programs for arm64, which run under
// an emulator. The node daemon is one with cgo, which finds NVIDIA GPUs.
func TestArm64(t *testing.T) {
	if runtime.GOARCH == "arm64" {
		t.Skip("the packages of this machine, which is arm64, are tested by the others")
	}
	need(t, "dpkg-deb")
	if _, err := exec.LookPath(cross); err != nil {
		t.Skipf("there is no %s here (apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross)", cross)
	}
	dir := *built
	if dir == "" {
		dir = filepath.Join(base, "arm64")
		run(t, "./build", dir, "arm64")
	}
	debs, err := filepath.Glob(filepath.Join(dir, "*_arm64.deb"))
	if err != nil || len(debs) == 0 {
		t.Skipf("there are no packages for arm64 in %s (make packages ARCH=\"amd64 arm64\")", dir)
	}
	root := t.TempDir()
	for _, file := range debs {
		if arch := strings.TrimSpace(run(t, "dpkg-deb", "--field", file, "Architecture")); arch != "arm64" {
			t.Errorf("%s is for %s", filepath.Base(file), arch)
		}
		name, _, _ := strings.Cut(filepath.Base(file), "_")
		own := files(t, name+"_*_"+runtime.GOARCH+".deb")[0]
		if got, want := paths(t, file), paths(t, own); !slices.Equal(got, want) {
			t.Errorf("%s has\n%v\nand for this machine\n%v", name, got, want)
		}
		run(t, "dpkg-deb", "-x", file, root)
	}
	node := filepath.Join(dir, "sluice-node_"+version(debs[0])+"_arm64.deb")
	if got := run(t, "dpkg-deb", "--field", node, "Depends"); !strings.Contains(got, "libc6 (>= 2.34)") {
		t.Errorf("the node daemon's package depends on %s", got)
	}
	for program, libraries := range map[string]bool{"usr/bin/sluice": false, "usr/sbin/sluice-ctld": false, "usr/sbin/sluice-noded": true} {
		isArm64(t, filepath.Join(root, program), libraries)
		emulated(t, filepath.Join(root, program), "--version", "sluice "+version(debs[0]))
	}
	emulated(t, filepath.Join(root, "usr/bin/sinfo"), "--help", "Usage: sinfo")
	emulated(t, filepath.Join(root, "usr/sbin/slurmd"), "-C", "NodeName=")
	if _, err := exec.LookPath("rpm"); err != nil {
		t.Log("the rpms are not looked at: there is no rpm here (apt-get install rpm)")
		return
	}
	rpms, err := filepath.Glob(filepath.Join(dir, "*.aarch64.rpm"))
	if err != nil || len(rpms) != len(debs) {
		t.Fatalf("there are %d debs and the rpms %v: %v", len(debs), rpms, err)
	}
	for _, file := range rpms {
		if arch := query(t, file, "%{ARCH}"); arch != "aarch64" {
			t.Errorf("%s is for %s", filepath.Base(file), arch)
		}
	}
}

// version is that of a deb, by its name.
func version(deb string) string { return strings.Split(filepath.Base(deb), "_")[1] }

// paths are the names of the files in a deb.
func paths(t *testing.T, deb string) (names []string) {
	t.Helper()
	for line := range strings.Lines(run(t, "dpkg-deb", "--contents", deb)) {
		names = append(names, strings.Join(strings.Fields(line)[5:], " "))
	}
	return names
}

// isArm64: a program is one for arm64, and uses libraries or does not.
func isArm64(t *testing.T, path string, libraries bool) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Machine != elf.EM_AARCH64 {
		t.Errorf("%s is for %v", path, f.Machine)
	}
	needed, err := f.ImportedLibraries()
	if slices.Contains(needed, "libc.so.6") != libraries {
		t.Errorf("%s uses the libraries %v: %v", path, needed, err)
	}
}

// emulated runs a program for arm64; without an emulator it says so.
func emulated(t *testing.T, path, arg, want string) {
	t.Helper()
	if _, err := exec.LookPath(qemu); err != nil {
		t.Logf("%s is not run: there is no %s here (apt-get install qemu-user-static)", filepath.Base(path), qemu)
		return
	}
	if _, err := os.Stat(crossLib); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(qemu, "-L", crossLib, "-0", path, path, arg).CombinedOutput()
	if err != nil || !strings.Contains(string(out), want) || strings.Contains(string(out), "cgo") {
		t.Errorf("%s %s: %v: %s", filepath.Base(path), arg, err, out)
	}
}

package private

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// deep makes folders in each other, with a file in each.
func deep(t *testing.T, dir string, levels int) {
	t.Helper()
	at, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for i := 0; i < levels && err == nil; i++ {
		var fd int
		if err = unix.Mkdirat(at, "d", 0o700); err == nil {
			if fd, err = unix.Openat(at, "d", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
				unix.Close(at)
				at = fd
				err = unix.Symlinkat("/", at, "link")
			}
		}
	}
	unix.Close(at)
	if err != nil {
		t.Fatal(err)
	}
}

// TestRemoveIsBounded: a process with few descriptors deletes folders that lie deep in each other.
func TestRemoveIsBounded(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: BasePath is root's")
	}
	if base := os.Getenv("SLUICE_TEST_REMOVE"); base != "" {
		if err := Remove(t.Context(), base, "job_1.1"); err != nil {
			t.Error(err)
		}
		if err := Purge(t.Context(), base); err != nil {
			t.Error(err)
		}
		return
	}
	base := t.TempDir()
	for i, name := range []string{"job_1.1/0/a", "job_1.1/0/b", marker + "job_2.1/0", marker + "job_2.1/deep-0/left"} {
		dir := filepath.Join(base, name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		deep(t, dir, []int{5000, 300, 300, 300}[i])
	}
	cmd := exec.Command("/bin/sh", "-c", `ulimit -n 100; exec "$0" -test.run='^TestRemoveIsBounded$' -test.v`, os.Args[0])
	cmd.Env = append(os.Environ(), "SLUICE_TEST_REMOVE="+base)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestRemoveIsBounded") {
		t.Errorf("%v: %.2000s", err, out)
	}
	if left, err := os.ReadDir(base); err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
		t.Log(exec.Command("rm", "-rf", base).Run()) // which is not bounded by descriptors either
	}
}

// TestRemoveStops: what a Remove that was told to end leaves, Purge deletes.
func TestRemoveStops(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: BasePath is root's")
	}
	base := t.TempDir()
	for i := range 10 {
		if err := os.MkdirAll(filepath.Join(base, "job_1.1/0", fmt.Sprint(i), "x"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := Remove(ctx, base, "job_1.1"); !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	if left, err := os.ReadDir(filepath.Join(base, marker+"job_1.1/0")); err != nil || len(left) != 10 {
		t.Errorf("%d left, %v", len(left), err)
	}
	if err := Purge(ctx, base); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(base, marker+"job_1.1")); err != nil {
		t.Errorf("a Purge that was told to end did not: %v", err)
	}
	if err := Purge(t.Context(), base); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(base); err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
}

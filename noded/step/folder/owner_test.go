package folder

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// asUser runs a shell script as somebody without rights.
func asUser(t *testing.T, uid uint32, script string, args ...string) string {
	t.Helper()
	cmd := exec.Command("sh", append([]string{"-c", script, "sh"}, args...)...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: 2000000001}}
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)) + map[bool]string{true: "", false: " FAILED"}[err == nil]
}

// TestScriptIsNotItsUsers: a job's user may read and execute its script, and do nothing else with it; nobody else may do that much.
func TestScriptIsNotItsUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be another user")
	}
	base := openTemp(t)
	if err := Lists(base); err != nil {
		t.Skip(err)
	}
	const uid, other = 2000000001, 2000000002
	dir, free := filepath.Join(base, "1.0.0"), filepath.Join(base, Free+"1")
	b := &pb.Bundle{Key: &pb.StepKey{JobId: 1}, Uid: uid, Gid: 2000000001}
	if err := Write(dir, b, []byte("#!/bin/sh\necho ran\n"), true); err != nil {
		t.Fatal(err)
	}
	check := func(dir string) {
		t.Helper()
		script := filepath.Join(dir, Script)
		for what, user := range map[string]uint32{`"$1"`: uid, `cat "$1" | grep -q echo && echo ran`: uid} {
			if got := asUser(t, user, what, script); got != "ran" {
				t.Errorf("%s: %q", what, got)
			}
		}
		for _, what := range []string{`echo more >>"$1"`, `chmod u+w "$1"`, `rm -f "$1"`, `mv "$1" "$1.old"`, `touch "$1"`, `: >"$1"`,
			`truncate -s 1G "$1"`, `echo x >"$2/x"`} {
			if got := asUser(t, uid, what, script, dir); !strings.HasSuffix(got, "FAILED") {
				t.Errorf("%s: %q", what, got)
			}
		}
		for _, what := range []string{`cat "$1"`, `"$1"`, `head -c1 <"$1"`} {
			if got := asUser(t, other, what, script); !strings.HasSuffix(got, "FAILED") || strings.Contains(got, "ran") {
				t.Errorf("another user: %s: %q", what, got)
			}
		}
		if raw, err := os.ReadFile(script); string(raw) != "#!/bin/sh\necho ran\n" || err != nil {
			t.Errorf("the script is now %q, %v", raw, err)
		}
	}
	check(dir)
	if err := WriteExit(dir, &pb.ExitRecord{Key: b.Key}); err != nil {
		t.Fatal(err)
	}
	if err := Retire(dir, free); err != nil {
		t.Fatal(err)
	}
	if err := Reuse(free, b, []byte("#!/bin/sh\necho ran\n"), true); err != nil {
		t.Fatalf("reused for the same user: %v", err)
	}
	check(free)
	for what, spoil := range map[string]func(path string) error{
		"another user's": func(path string) error { return nil },
		"the user's own": func(path string) error { return os.Chown(path, uid, uid) },
		"writable":       func(path string) error { return os.Chmod(path, 0o570) },
	} {
		to := &pb.Bundle{Key: b.Key, Uid: uid}
		if what == "another user's" {
			to.Uid = other
		}
		_ = Remove(free)
		if err := Write(free, b, []byte("#!/bin/sh\n"), true); err != nil {
			t.Fatal(err)
		}
		if err := spoil(filepath.Join(free, Script)); err != nil {
			t.Fatal(err)
		}
		if err := Reuse(free, to, []byte("#!/bin/sh\n"), true); err == nil {
			t.Errorf("%s: reused", what)
		}
	}
}

// TestScriptThatIsKept: whoever has kept a script, open or by a hard link, keeps nothing of it once its folder has been deleted.
func TestScriptThatIsKept(t *testing.T) {
	for _, size := range []int{100, 4 << 20} {
		base := openTemp(t)
		dir, link := filepath.Join(base, "1.0.0"), filepath.Join(base, "kept")
		if err := Write(dir, &pb.Bundle{Key: &pb.StepKey{JobId: 1}}, make([]byte, size), false); err != nil {
			t.Fatal(err)
		}
		kept, err := os.Open(filepath.Join(dir, Script))
		if err != nil {
			t.Fatal(err)
		}
		defer kept.Close()
		if size == 100 {
			if err := os.Link(kept.Name(), link); err != nil {
				t.Fatal(err)
			}
		}
		if err := Remove(dir); err != nil {
			t.Fatal(err)
		}
		if st, err := kept.Stat(); err != nil || st.Size() != 0 {
			t.Errorf("%d bytes are left of %d, %v", st.Size(), size, err)
		}
	}
}

// openTemp is a folder that every user can pass through, in the end.
func openTemp(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		_ = os.Chmod(d, 0o755)
	}
	return dir
}

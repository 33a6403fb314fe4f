package folder

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

func TestNames(t *testing.T) {
	for _, c := range []struct {
		name string
		key  *pb.StepKey // nil: refused
	}{
		{"12.1.4294967291", &pb.StepKey{JobId: 12, Attempt: 1, Step: pb.BatchStep}},
		{"1.0.0", &pb.StepKey{JobId: 1}},
		{"", nil}, {"1.2", nil}, {"1.2.3.4", nil}, {"01.2.3", nil}, {"-1.2.3", nil}, {"1.2.4294967296", nil}, {".new-1.2.3", nil},
		{"1.2.x", nil},
	} {
		got, err := ParseName(c.name)
		if c.key == nil {
			if err == nil {
				t.Errorf("ParseName(%q) = %v, want an error", c.name, got)
			}
			continue
		}
		if err != nil || !proto.Equal(got, c.key) || Name(got) != c.name {
			t.Errorf("ParseName(%q) = %v, %v", c.name, got, err)
		}
	}
}

func FuzzParseName(f *testing.F) {
	f.Add("12.1.4294967291")
	f.Add("..")
	f.Fuzz(func(t *testing.T, s string) {
		if k, err := ParseName(s); err == nil && Name(k) != s {
			t.Errorf("%q is read as %v, which is named %q", s, k, Name(k))
		}
	})
}

func TestRecords(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "3.0.0")
	b := &pb.Bundle{Key: &pb.StepKey{JobId: 3}, Env: []string{"A=\xc3\xa9"}}
	if err := Write(dir, b, []byte("#!/bin/sh\n"), false); err != nil {
		t.Fatal(err)
	}
	if err := Write(dir, b, nil, false); err == nil {
		t.Error("written over")
	}
	if got, err := ReadBundle(dir); err != nil || !proto.Equal(got, b) {
		t.Errorf("bundle %v, %v", got, err)
	}
	if r, err := ReadExit(dir); r != nil || err != nil {
		t.Errorf("no record yet: %v, %v", r, err)
	}
	rec := &pb.ExitRecord{Key: b.Key, Verdict: "exited", WaitStatus: 256}
	for range 2 { // the second time after a crash that lost the first's acknowledgement
		if err := WriteExit(dir, rec); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := ReadExit(dir); err != nil || !proto.Equal(got, rec) {
		t.Errorf("record %v, %v", got, err)
	}
	for file, mode := range map[string]os.FileMode{"": 0o711, Bundle: 0o600, Script: 0o500, Exit: 0o600} {
		if st, err := os.Stat(filepath.Join(dir, file)); err != nil || st.Mode().Perm() != mode {
			t.Errorf("%q: mode %v, %v; want %o", file, st.Mode(), err, mode)
		}
	}
	path := filepath.Join(dir, Exit)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		torn := slices.Clone(whole)
		torn[i] ^= 0x20
		for _, bad := range [][]byte{torn, whole[:i]} {
			if err := os.WriteFile(path, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			if r, err := ReadExit(dir); r != nil || err == nil || !strings.Contains(err.Error(), Exit) {
				t.Fatalf("a torn record %q: %v, %v", bad, r, err)
			}
		}
	}
	if err := WriteExit(dir, &pb.ExitRecord{Key: &pb.StepKey{JobId: 4}}); err != nil {
		t.Fatal(err)
	}
	if r, err := ReadExit(dir); r != nil || err == nil || !strings.Contains(err.Error(), "4.0.0") {
		t.Errorf("the record of another step: %v, %v", r, err)
	}
	if err := Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := Remove(dir); err != nil {
		t.Errorf("removed twice: %v", err)
	}
}

func TestReuse(t *testing.T) {
	base := t.TempDir()
	dir, free := filepath.Join(base, "1.0.0"), filepath.Join(base, Free+"1")
	b := &pb.Bundle{Key: &pb.StepKey{JobId: 1}, Env: []string{"LONG=" + strings.Repeat("x", 9000)}}
	end := func() {
		t.Helper()
		if err := WriteExit(dir, &pb.ExitRecord{Key: b.Key, Detail: strings.Repeat("y", 5000)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := Write(dir, b, []byte("#!/bin/sh\n# long\n"), false); err != nil {
		t.Fatal(err)
	}
	end()
	if err := Retire(dir, free); err != nil {
		t.Fatal(err)
	}
	small := &pb.Bundle{Key: &pb.StepKey{JobId: 2}}
	if err := Reuse(free, small, []byte("#!/bin/sh\n"), false); err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(base, "2.0.0")
	if err := os.Rename(free, dir); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadBundle(dir); err != nil || !proto.Equal(got, small) {
		t.Errorf("bundle %v, %v", got, err)
	}
	if s, err := os.ReadFile(filepath.Join(dir, Script)); string(s) != "#!/bin/sh\n" {
		t.Errorf("script %q, %v", s, err)
	}
	if r, err := ReadExit(dir); r != nil || err != nil {
		t.Errorf("the old record shows: %v, %v", r, err)
	}
	end()
	short := &pb.ExitRecord{Key: small.Key, Verdict: "exited"}
	if err := WriteExit(dir, short); err != nil {
		t.Fatal(err)
	}
	if r, err := ReadExit(dir); err != nil || !proto.Equal(r, short) {
		t.Errorf("record %v, %v", r, err)
	}
	for name, spoil := range map[string]func(string) error{
		"hard link": func(s string) error { return os.Link(s, filepath.Join(base, "link")) },
		"mode":      func(s string) error { return os.Chmod(s, 0o777) },
		"symlink":   func(s string) error { os.Remove(s); return os.Symlink("/etc/passwd", s) },
		"gone":      os.Remove,
	} {
		_ = Remove(dir)
		_ = Remove(free)
		_ = os.Remove(filepath.Join(base, "link"))
		if err := Write(free, b, []byte("#!/bin/sh\n"), false); err != nil {
			t.Fatal(err)
		}
		if err := spoil(filepath.Join(free, Script)); err != nil {
			t.Fatal(err)
		}
		if err := Reuse(free, small, []byte("#!/bin/sh\n"), false); err == nil {
			t.Errorf("%s: reused", name)
		}
	}
	_ = Remove(dir)
	if err := Write(dir, b, nil, false); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "epilog"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Retire(dir, free); err == nil {
		t.Error("retired with another's file in it")
	}
}

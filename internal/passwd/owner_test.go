package passwd

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestExpired(t *testing.T) {
	const shadow = "root:*:1:0:99999:7:::\ngone:!:1:0:99999:7::20000:\nsoon:x:1:0:99999:7::20002:\nlocked:!$6$x:1:0:99999:7:::\nbad:x:1:::::x:\n"
	now := time.Unix(20001*86400+5, 0)
	for name, want := range map[string]bool{"root": false, "gone": true, "soon": false, "locked": false, "bad": false, "nobody": false} {
		if got := expired([]byte(shadow), name, now); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if !expired([]byte(shadow), "soon", now.Add(24*time.Hour)) {
		t.Error("on its day an account has expired")
	}
}

func TestNow(t *testing.T) {
	a, groups, known, problem, err := Now(t.Context(), 0)
	if err != nil || !known || problem != "" || a.Name != "root" || !slices.Contains(groups, a.GID) {
		t.Errorf("root: %+v, %v, %q, %v", a, groups, problem, err)
	}
	if _, _, known, problem, err := Now(t.Context(), 3_999_999_999); known || problem != "" {
		t.Errorf("nobody: %v, %q, %v", known, problem, err)
	}
}

// TestNowWithoutDirectory: groups of a directory that does not answer are not taken for none.
func TestNowWithoutDirectory(t *testing.T) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "getent"), []byte("#!/bin/sh\n[ $1 = passwd ] && exit 2\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	if _, groups, _, _, err := Now(t.Context(), 0); err == nil {
		t.Errorf("root: groups %v and no error", groups)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, _, known, _, err := Now(ended, 3_999_999_999); known || !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v, %v", known, err)
	}
}

package sbatch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/internal/passwd"
)

// TestHangingLoginLeavesNothing: login files that wait for ever, in the session that su gives the shell, and in another.
func TestHangingLoginLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	shell, left := filepath.Join(dir, "shell"), filepath.Join(dir, "pids")
	if err := os.WriteFile(shell, []byte(`#!/bin/bash
echo $$ >> '`+left+`'
(trap "" TERM HUP; setsid bash -c 'echo $$ >> "$0"; sleep 987654 & echo $! >> "$0"; wait' '`+left+`') &
sleep 987654
`), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, late := context.WithCancel(t.Context())
	go func() {
		for n := 0; n < 3; {
			pids, _ := os.ReadFile(left)
			n = strings.Count(string(pids), "\n")
		}
		late()
	}()
	vars, err := loginEnvironment(ctx, passwd.Account{Name: "u", UID: uint32(os.Getuid()), Home: "/", Shell: shell}, "600L")
	if err == nil || len(vars) != 5 {
		t.Errorf("%q, %v", vars, err)
	}
	pids, _ := os.ReadFile(left)
	if below := descendants(os.Getpid()); len(below) > 0 {
		t.Errorf("%v are left of %q", below, pids)
	}
	for pid := range strings.FieldsSeq(string(pids)) {
		if _, err := os.Stat("/proc/" + pid); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("process %s is left: %v", pid, err)
		}
	}
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
}

package command_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/client/command"
)

// TestOutputThatCannotBeWritten: a full disk is told, once, on standard error.
func TestOutputThatCannotBeWritten(t *testing.T) {
	if os.Getenv("WRITE_TWICE") != "" {
		out := command.Process("squeue").Stdout
		for range 2 {
			if _, err := out.Write([]byte("JOBID\n")); err == nil {
				os.Exit(1)
			}
		}
		os.Exit(0)
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("needs /dev/full, a device that refuses all writing: %v", err)
	}
	defer full.Close()
	var said strings.Builder
	c := exec.Command(os.Args[0], "-test.run", t.Name())
	c.Env, c.Stdout, c.Stderr = append(os.Environ(), "WRITE_TWICE=1"), full, &said
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	if want := "squeue: error: cannot write the output: no space left on device\n"; said.String() != want {
		t.Errorf("said %q, want %q", said.String(), want)
	}
}

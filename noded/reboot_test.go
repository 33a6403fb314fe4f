package noded

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-hpc/sluice/noded/hw"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// RebootProgram runs once in a boot, with its words, and not for an order of an earlier boot; one that fails may be ordered again.
func TestRebootProgram(t *testing.T) {
	dir := t.TempDir()
	ran := filepath.Join(dir, "ran")
	script := filepath.Join(dir, "reboot")
	must(t, os.WriteFile(script, []byte("#!/bin/sh\necho \"$SLURMD_NODENAME $*\" >>"+ran+"\n[ \"$1\" != fail ]\n"), 0o755))
	n := &node{o: Options{NodeName: "n1"}, inv: hw.Inventory{BootID: "b2"}, log: slog.New(slog.DiscardHandler), results: make(chan func()), workers: make(chan struct{}, 1)}
	order := func(boot, args string, runs bool) {
		n.reboot(context.Background(), &pb.RebootOrder{Program: script + args, BootId: boot})
		if runs {
			(<-n.results)()
		}
	}
	order("b1", " late", false)
	order("b2", " fail", true)
	order("b2", " now", true)
	order("b2", " again", false)
	n.wg.Wait()
	if got, _ := os.ReadFile(ran); string(got) != "n1 fail\nn1 now\n" {
		t.Errorf("%q", got)
	}
}

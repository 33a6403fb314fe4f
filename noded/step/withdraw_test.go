package step

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/sluice-hpc/sluice/noded/step/folder"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestWithdrawOrAccept: a shim may accept a launch of the daemon that was killed while the next one withdraws it. Whoever is first,
// the step is whole or gone.
func TestWithdrawOrAccept(t *testing.T) {
	spool := t.TempDir()
	steps := filepath.Join(spool, folder.Steps)
	if err := os.Mkdir(steps, 0o711); err != nil {
		t.Fatal(err)
	}
	r := &Runner{o: Options{Spool: spool}}
	b := &pb.Bundle{Key: &pb.StepKey{JobId: 1, Attempt: 1}}
	written, accepted := filepath.Join(steps, folder.New+folder.Name(b.Key)), filepath.Join(steps, folder.Name(b.Key))
	won := 0
	for range 500 {
		if err := folder.Write(written, b, []byte("#!/bin/sh\n"), false); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := r.withdrawAll(); err != nil {
				t.Error(err)
			}
		})
		var err error
		wg.Go(func() {
			if _, err = folder.ReadBundle(written); err == nil { // as the shim does
				err = os.Rename(written, accepted)
			}
		})
		wg.Wait()
		if err == nil {
			won++
			_, berr := os.Stat(filepath.Join(accepted, folder.Bundle))
			_, serr := os.Stat(filepath.Join(accepted, folder.Script))
			if err := errors.Join(berr, serr); err != nil {
				t.Fatalf("accepted, and not whole: %v", err)
			}
			folder.Remove(accepted)
		}
		if left, _ := os.ReadDir(steps); len(left) > 0 {
			t.Fatalf("left: %v", left)
		}
	}
	t.Logf("%d of 500 launches were accepted", won)
}

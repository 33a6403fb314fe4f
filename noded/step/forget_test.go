package step

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-hpc/sluice/noded/step/folder"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestForgetAgain: what could not be deleted is deleted when it can be, by the same order again.
func TestForgetAgain(t *testing.T) {
	spool := t.TempDir()
	steps, away := filepath.Join(spool, folder.Steps), filepath.Join(spool, "away")
	k := &pb.StepKey{JobId: 1, Attempt: 1}
	name := folder.Name(k)
	for _, err := range []error{os.Mkdir(steps, 0o711), folder.Write(filepath.Join(steps, name), &pb.Bundle{Key: k}, nil, false),
		os.Rename(steps, away), os.WriteFile(steps, nil, 0o600)} { // a folder that root cannot delete, either
		if err != nil {
			t.Fatal(err)
		}
	}
	ended := &entry{name: name, rep: &pb.StepReport{Phase: pb.StepPhase_STEP_ENDED}}
	r := &Runner{o: Options{Spool: spool}, steps: map[string]*entry{name: ended}}
	if err := r.Forget(k); err == nil {
		t.Fatal("it could be deleted")
	}
	if err := errors.Join(os.Remove(steps), os.Rename(away, steps), r.Forget(k)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(steps, name)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder of the step is still there: %v", err)
	}
}

package stepd

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestFoldersOfContainers: the folder that all users' are in may go at any moment, as long as it is empty.
func TestFoldersOfContainers(t *testing.T) {
	base := filepath.Join(t.TempDir(), "run")
	var wg sync.WaitGroup
	done := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				_ = os.Remove(base)
			}
		}
	})
	l, own := &launcher{}, filepath.Join(base, "1000")
	for range 200 {
		if err := l.folderOf(own, &pb.Bundle{}); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(own); err != nil {
			t.Fatal(err)
		}
	}
	close(done)
	wg.Wait()
}

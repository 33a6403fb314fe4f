package cgroup

import (
	"os"
	"path/filepath"
	"testing"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestFoldersMadeAgain: a root whose folders are removed and made again, as when a node is taken down and comes back, keeps its groups in
// the new ones.
func TestFoldersMadeAgain(t *testing.T) {
	for name, r := range roots(t) {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				remade(t, r.(*linuxRoot))
				r.Tidy()
				if _, err := os.Stat(r.(*linuxRoot).track); !os.IsNotExist(err) {
					t.Fatal("the folder of the root is still there:", err)
				}
				again, err := Open(r.(*linuxRoot).name, map[Layout]string{Unified: PluginV2, Legacy: PluginV1}[r.Layout()])
				if err != nil {
					t.Fatal(err)
				}
				r = again
			}
		})
	}
}

func remade(t *testing.T, r *linuxRoot) {
	t.Helper()
	g, err := r.Create("job_5.1", &pb.Limits{Pids: 40})
	if err != nil {
		t.Fatal(err)
	}
	if r.pids != "" {
		if b, err := os.ReadFile(filepath.Join(r.pids, "job_5.1", "pids.max")); err != nil || string(b) != "40\n" {
			t.Errorf("pids.max is %q, %v", b, err)
		}
	}
	if empty, err := g.Empty(); !empty || err != nil {
		t.Errorf("a fresh group is empty: %v, %v", empty, err)
	}
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(r.track, "job_5.1")); !os.IsNotExist(err) {
		t.Error("the group is still there:", err)
	}
}

// TestNear: only what lies below an open folder is found from it.
func TestNear(t *testing.T) {
	addPlace(place{"/near/one/", 77})
	for path, want := range map[string]string{"/near/one/job_1.1/batch": "job_1.1/batch", "/near/one/": "", "/near/one": "",
		"/near/on": "", "/near/oneself/job": "", "near/one/job": ""} {
		if fd, rest := near(path); rest != want || (fd == 77) != (want != "") {
			t.Errorf("near(%q) = %d, %q; want the rest %q", path, fd, rest, want)
		}
	}
}

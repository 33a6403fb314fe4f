package root

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
)

// TestFollow: the highest generation survives the daemon, a lower one is never taken instead, and the status says what is refused.
func TestFollow(t *testing.T) {
	dir, status := t.TempDir(), ""
	start := func() (*Root, error) {
		return New(t.Context(), Options{Login: true, TLS: dir, Log: slog.New(slog.DiscardHandler), Status: func(s string) { status = s }})
	}
	follow := func(r *Root, generation uint64, refused string) error {
		_, err := r.follow(t.Context(), &nodepb.Request{What: &nodepb.Request_Follow{Follow: &nodepb.Follow{ClusterId: "c",
			Generation: generation, Refused: refused}}})
		return err
	}
	for _, g := range []uint64{1, 7} {
		r, err := start()
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(follow(r, g, ""), follow(r, g, "it is old")); err != nil || status != "it is old" {
			t.Errorf("%v, status %q", err, status)
		}
		if err := follow(r, g, ""); err != nil || status != "" {
			t.Errorf("%v, status %q", err, status)
		}
		_ = r.Close()
	}
	r, err := start()
	if err != nil || r.followed.Number != 7 {
		t.Fatalf("%v, %v", r.followed, err)
	}
	if follow(r, 6, "") == nil || r.followed.Number != 7 {
		t.Error("a lower generation was taken")
	}
	_ = r.Close()
	if err := os.WriteFile(filepath.Join(dir, "generation"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := start(); err == nil {
		t.Error("a damaged record counts as none")
	}
}

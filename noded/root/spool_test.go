package root

import (
	"log/slog"
	"os"
	"strings"
	"testing"
)

var quiet = slog.New(slog.DiscardHandler)

// Where everybody may write, others could put files in place of the daemon's own.
func TestSpoolThatEverybodyWritesToIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o1777); err != nil {
		t.Fatal(err)
	}
	if sp, err := openSpool(dir, quiet); err == nil || !strings.Contains(err.Error(), "chmod o-w") {
		t.Errorf("%v %v", sp, err)
	}
}

package inherit

import (
	"os"
	"path/filepath"
	"testing"
)

// TestSparedByOthers: where the service manager has chosen that this process is spared, what it starts is not; where it has chosen that it
// goes first, or there are no rights, nothing changes.
func TestSparedByOthers(t *testing.T) {
	for _, c := range []struct {
		found      string
		root       bool
		own, child string
	}{{"-900", false, "-900", "0"}, {"-900", true, "-900", "0"}, {"0", true, "-999", "0"}, {"0", false, "0", "0"},
		{"300", true, "300", "300"}} {
		path := filepath.Join(t.TempDir(), "oom_score_adj")
		if err := os.WriteFile(path, []byte(c.found), 0o600); err != nil {
			t.Fatal(err)
		}
		said := func() string {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			return string(text[:min(len(text), len(c.own))]) // what the kernel has is replaced as a whole
		}
		if err := spareBy(path, -999, c.root); err != nil {
			t.Fatal(err)
		}
		if got := said(); got != c.own {
			t.Errorf("%+v: this process has %s", c, got)
		}
		child := ""
		if err := unspared(func() error { child = said()[:len(c.child)]; return nil }); err != nil {
			t.Fatal(err)
		}
		if child != c.child || said() != c.own {
			t.Errorf("%+v: what is started has %s, and afterwards this process %s", c, child, said())
		}
		if spared.file != nil {
			spared.file.Close()
			spared.file = nil
		}
	}
}

package stepd

import (
	"os"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/internal/inherit"
)

// TestBecomeNobodyAtAll: -1 means "as it is" to the kernel, so becoming it would leave the thread root's.
func TestBecomeNobodyAtAll(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	const none = 1<<32 - 1
	for _, c := range []struct {
		uid, gid uint32
		groups   []uint32
	}{{none, 4711, nil}, {4711, none, nil}, {4711, 4711, []uint32{none}}} {
		if err := inherit.OnThread(func() error { return ownCreds().become(c.uid, c.gid, c.groups) }); err == nil ||
			!strings.Contains(err.Error(), "is no id") {
			t.Errorf("uid %d, gid %d, groups %v: %v", c.uid, c.gid, c.groups, err)
		}
	}
}

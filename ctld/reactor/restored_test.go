package reactor

import (
	"strings"
	"testing"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// restored has the state so far come from a backup.
func (b *bench) restored() {
	v := *b.view
	v.Restored = v.Seq + 1000
	v.Seq = v.Restored
	b.view = &v
}

// TestRestored: an attempt that a restored state shows as started waits until its node has said what became of it, also when that was
// rebooted since; one that is unknown there is requeued if it may be.
func TestRestored(t *testing.T) {
	for _, c := range []struct {
		requeue uint32
		verdict string
		want    string
	}{
		{pb.Yes, "exited", "COMPLETED"},
		{pb.Yes, "unknown", "PENDING"},
		{pb.No, "unknown", "NODE_FAIL"},
	} {
		b := newBench(t, nil)
		id := b.submit(&pb.JobSpec{Requeue: c.requeue})
		b.start(id, "n1")
		b.restored()
		b.do(hello("n1", "boot2"))
		if s := b.state(id); !strings.HasPrefix(s, "RUNNING") {
			t.Errorf("before its node has said anything: %s", s)
		}
		b.ended(id, "n1", c.verdict, 0)
		if s := b.state(id); !strings.HasPrefix(s, c.want) {
			t.Errorf("%s, requeue=%d: %s", c.verdict, c.requeue, s)
		}
	}
}

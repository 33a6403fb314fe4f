package reactor

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// onDisk is a command that is carried out while the disk of the state has room for what is left of size.
type onDisk struct {
	Command
	size int64
}

func (c onDisk) Handle(tx *state.Tx) any {
	tx.Room = c.size
	for uid := range uint32(10) {
		tx.Room -= tx.UserBytes(uid)
	}
	return c.Command.Handle(tx)
}

// fill submits scripts of 100 KiB until one is refused, on a disk with room for `room` of them.
func (b *bench) fill(uid uint32, room int64) (n int, p *pb.Problem) {
	b.t.Helper()
	for ; n < 50; n++ {
		j, p := admit.Job(b.view, &pb.JobSpec{Uid: uid, User: fmt.Sprint("u", uid), Hold: true}, fmt.Sprint(uid, "-", n))
		if p != nil {
			b.t.Fatal(p)
		}
		texts, err := state.PackTexts(uid, noisy(100<<10, byte(n)), nil)
		if err != nil {
			b.t.Fatal(err)
		}
		if p, refused := b.do(onDisk{Submit{Job: j, Texts: texts, Layout: b.view.Layout}, room * 100 << 10}).(*pb.Problem); refused {
			return n, p
		}
	}
	return n, nil
}

// TestNobodyTakesTheWholeDisk: of a disk that is nearly full each user gets three quarters of what others leave, and root all that there
// is. Once the jobs of one have been cancelled there is room again, at once; a command that has lost its answer still makes no second job.
func TestNobodyTakesTheWholeDisk(t *testing.T) {
	b := newBench(t, nil)
	var got []int
	for uid := uint32(1); uid < 4; uid++ {
		n, p := b.fill(uid, 40)
		if p == nil || p.Code != uint32(pb.CodeQueueFull) || p.Hint == "" ||
			!strings.Contains(p.Error(), "the disk of StateSaveLocation is nearly full") ||
			!strings.Contains(p.Error(), fmt.Sprint("user u", uid, " holds ")) {
			t.Fatalf("after %d scripts user %d is refused with %v", n, uid, p)
		}
		got = append(got, n)
	}
	if fmt.Sprint(got) != "[29 7 2]" { // what records take, too
		t.Errorf("the users got %v of 40 scripts", got)
	}
	if n, p := b.fill(0, 40); p != nil {
		t.Errorf("root got %d, and %v", n, p)
	}
	if n, p := b.fill(9, 1<<20); p != nil {
		t.Errorf("on a disk with room a user got %d, and %v", n, p)
	}
	for j := range b.view.Jobs.All() {
		if j.Spec.Uid != 2 {
			b.do(Cancel{Caller: root, IDs: []string{fmt.Sprint(j.Id)}})
		}
	}
	b.do(onDisk{Tick{Purge: true}, 1000 << 20})
	if n := b.view.Jobs.Len(); n < 100 {
		t.Fatalf("with room, jobs are forgotten before MinJobAge: %d are left", n)
	}
	b.do(onDisk{Tick{Purge: true}, 10 << 20})
	if n := b.view.Jobs.Len(); n != 7 {
		t.Errorf("%d jobs are left, want the 7 that wait", n)
	}
	again, _ := admit.Job(b.view, &pb.JobSpec{Uid: 1, Hold: true}, "1-0")
	for range 2 {
		if r, ok := b.do(Submit{Job: again}).(Submitted); !ok || r.ID != 1 {
			t.Errorf("a request that made a job was made again: %v", r)
		}
		b.view.Reindex() // as after a refused batch
	}
	if n, _ := b.fill(4, 40); n != 24 {
		t.Errorf("beside 7 of another, a user got %d of 40", n)
	}
	b.now += requestMemoryNS
	b.do(Cancel{Caller: root, IDs: []string{fmt.Sprint(b.view.NextJobID - 1)}})
	b.do(onDisk{Tick{Purge: true}, 1 << 20})
	if r, ok := b.do(Submit{Job: again}).(Submitted); !ok || r.ID == 1 {
		t.Errorf("a request is remembered for ever: %v", r)
	}
}

package state

import (
	"testing"

	"github.com/sluice-hpc/sluice/ctld/journal"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// TestLimitsAreShared by the jobs of one user while they are equal, also after a restart, and not with other users.
func TestLimitsAreShared(t *testing.T) {
	spec := func(uid uint32, soft uint64) *pb.JobSpec {
		return &pb.JobSpec{Uid: uid, Rlimits: []*pb.Rlimit{{Resource: 7, Soft: soft, Hard: 4096}, {Resource: 4, Soft: 0, Hard: 9}}}
	}
	specs := []*pb.JobSpec{spec(1, 1024), spec(1, 1024), spec(2, 1024), spec(1, 2048), spec(1, 2048)}
	var jobs []*pb.JobRecord
	for i, s := range specs {
		jobs = append(jobs, &pb.JobRecord{Id: uint32(i + 1), Spec: s})
	}
	check := func(when string, limits func(i int) []*pb.Rlimit) {
		t.Helper()
		for i := range jobs {
			if got, want := limits(i), spec(0, []uint64{1024, 1024, 1024, 2048, 2048}[i]).Rlimits; !proto.Equal(&pb.JobSpec{Rlimits: got},
				&pb.JobSpec{Rlimits: want}) {
				t.Errorf("%s, job %d: %v", when, i+1, got)
			}
		}
		same := func(a, b int) bool { return &limits(a)[0] == &limits(b)[0] }
		if !same(0, 1) || same(0, 2) || same(0, 3) || !same(3, 4) {
			t.Errorf("%s: shared by others than who should", when)
		}
	}
	cfg := &Config{Settings: &Settings{Cluster: "c"}}
	tx := Begin(New(cfg, "c", 1), 1)
	store := journal.NewMemory()
	for i, s := range specs {
		tx.ShareLimits(s)
		raw, err := proto.Marshal(jobs[i])
		if err == nil {
			err = store.Commit(journal.Batch{Seq: uint64(i + 1),
				Rows: []journal.Row{{Bucket: journal.Jobs, Key: []byte{0, 0, 0, byte(i + 1)}, Value: raw}}})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	check("submitted", func(i int) []*pb.Rlimit { return specs[i].Rlimits })
	v, err := Load(cfg, store, "c", 1)
	if err != nil {
		t.Fatal(err)
	}
	check("loaded", func(i int) []*pb.Rlimit { return v.Jobs.Get(uint32(i + 1)).Spec.Rlimits })
}

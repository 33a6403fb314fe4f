package state

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-hpc/sluice/ctld/journal"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// later is a field that only a later release knows: number 20000, four bytes.
var later = []byte{0x82, 0xe2, 0x09, 4, 'l', 'a', 't', 'e'}

// TestLaterFields: fields that a later release wrote into a row survive when this release writes the row again, so a downgrade and another
// upgrade lose nothing.
func TestLaterFields(t *testing.T) {
	keeps := func(what string, copied proto.Message) {
		t.Helper()
		if !bytes.Equal(copied.ProtoReflect().GetUnknown(), later) {
			t.Errorf("a copy of %s lacks what a later release has written", what)
		}
	}
	keeps("a job", CloneJob(read(t, &pb.JobRecord{})))
	keeps("a specification", CloneSpec(read(t, &pb.JobSpec{})))
	keeps("an allocation", CloneAlloc(read(t, &pb.NodeAlloc{})))
	keeps("a node", CloneNode(read(t, &pb.NodeRecord{})))
	keeps("what is stored of a node", storedNode(&Node{NodeRecord: read(t, &pb.NodeRecord{})}))
	keeps("a partition", ClonePartition(read(t, &pb.PartitionRecord{})))
	keeps("a reservation", pb.ShallowCopy(read(t, &pb.ReservationRecord{})))
}

// TestLaterRows reads a job's row, changes the job, and writes the row.
func TestLaterRows(t *testing.T) {
	row, err := proto.Marshal(&pb.JobRecord{Id: 7, Spec: &pb.JobSpec{Name: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	tx := Begin(New(&Config{}, "cluster", 1), 0)
	if err := tx.loadRow(journal.Jobs, jobKey(7), append(row, later...)); err != nil {
		t.Fatal(err)
	}
	j := CloneJob(tx.Job(7))
	j.Spec = CloneSpec(j.Spec)
	j.Spec.Name = "b"
	tx.Emit(JobChanged{Job: j, What: "test"})
	rows, err := tx.Rows()
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, r := range rows {
		if r.Bucket == journal.Jobs {
			found = bytes.Contains(r.Value, later) && bytes.Contains(r.Value, []byte("b"))
		}
	}
	if !found {
		t.Errorf("the job's row lacks what a later release has written: %v", rows)
	}
}

// read is a message as it comes from a later release.
func read[M proto.Message](t *testing.T, m M) M {
	t.Helper()
	if err := proto.Unmarshal(later, m); err != nil {
		t.Fatal(err)
	}
	return m
}

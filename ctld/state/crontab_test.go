package state

import (
	"testing"

	"github.com/sluice-hpc/sluice/ctld/journal"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

func TestCrontabsAreKept(t *testing.T) {
	store := journal.NewMemory()
	v := New(&Config{Settings: &Settings{}}, "c", 1)
	write := func(r *pb.CrontabRecord) {
		tx := Begin(v, 1)
		tx.Emit(CrontabChanged{Crontab: r})
		if !tx.Durable() {
			t.Fatal("not to be written")
		}
		rows, err := tx.Rows()
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Commit(journal.Batch{Seq: tx.Seq, Rows: rows}); err != nil {
			t.Fatal(err)
		}
		v, _ = tx.Freeze()
	}
	alice := &pb.CrontabRecord{Uid: 1000, User: "alice", Text: "@daily true\n",
		Entries: []*pb.CrontabEntry{{JobId: 4, Cron: "@daily", FirstLine: 1, LastLine: 1, Digest: "d"}}}
	write(&pb.CrontabRecord{Uid: 2000, Text: "x"})
	write(alice)
	write(&pb.CrontabRecord{Uid: 2000}) // removed
	got, err := Load(&Config{Settings: &Settings{}}, store, "c", 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Crontabs()) != 1 || !proto.Equal(got.Crontab(1000), alice) || got.Crontab(2000) != nil {
		t.Errorf("loaded %v", got.Crontabs())
	}
}

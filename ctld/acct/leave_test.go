package acct

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/conf/tres"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// A selection ends with the record at which its caller goes away, wherever that record comes from: the state, the outbox or the database.
func TestSelectionsEndWithTheirCaller(t *testing.T) {
	w := newWorld(t, t.TempDir())
	defer func() { w.a.shut() }()
	const each = 40
	for range each { // in the database
		id := w.submit(1)
		w.begin(id)
		w.end(id, 0)
	}
	if err := w.a.store(context.Background()); err != nil {
		t.Fatal(err)
	}
	w.deaf = true
	for range each { // in the state alone
		w.submit(1)
	}
	w.now = w.now.Add(time.Minute)
	request := &pb.AccountingRequest{SinceNs: 1}
	total := len(w.ask(request))
	if total < 2*each {
		t.Fatalf("%d records, want %d", total, 2*each)
	}
	for _, leaves := range []int{1, each / 2, each + 5, total - 2} {
		ctx, cancel := context.WithCancel(context.Background())
		n := 0
		err := w.a.Select(ctx, request, w.loop.View, func([]byte) error {
			if n++; n == leaves {
				cancel()
			}
			return nil
		})
		if cancel(); !errors.Is(err, context.Canceled) || n != leaves {
			t.Errorf("the caller went at record %d of %d; the walk ended at %d with %v", leaves, total, n, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	n := 0
	err := w.a.attempts(ctx, &pb.AccountingRequest{SinceNs: 1}, w.loop.View, func(*pb.JobRecord, tres.List) {
		if n++; n == 3 {
			cancel()
		}
	})
	if cancel(); !errors.Is(err, context.Canceled) || n != 3 {
		t.Errorf("sums went on to %d records: %v", n, err)
	}
}

// Stepped lists are not expanded here either, and more of them than are useful are refused.
func TestSteppedSelection(t *testing.T) {
	var ids []string
	for i := range 1000 {
		ids = append(ids, fmt.Sprintf("%d_[%d-8388606:2]", i%2+1, i%3))
	}
	q, p := newSelection(&pb.AccountingRequest{Ids: ids}, 1)
	if p != nil {
		t.Fatal(p)
	}
	for task, want := range map[uint32]bool{0: true, 1: true, 2: true, 8388606: true, 8388607: false} {
		if got := q.tests[0](&pb.JobRecord{Id: 9, ArrayJobId: 1, IsArrayTask: true, ArrayTaskId: task}); got != want {
			t.Errorf("task %d: %v", task, got)
		}
	}
	var steps []string
	for i := range 300 {
		steps = append(steps, fmt.Sprintf("0-4000000:%d", i+2))
	}
	if _, p := newSelection(&pb.AccountingRequest{Ids: []string{"1_[" + strings.Join(steps, ",") + "]"}}, 1); p == nil {
		t.Error("300 ranges with a step are taken")
	}
}

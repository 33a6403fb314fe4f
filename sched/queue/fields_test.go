package queue

import (
	"testing"

	"github.com/sluice-hpc/sluice/internal/test/fieldtest"
	"github.com/sluice-hpc/sluice/sched/record"
)

// TestQueueComparesEveryField: a job whose record changed keeps its place in the queue only if nothing changed that the place hangs on.
func TestQueueComparesEveryField(t *testing.T) {
	request := &record.Request{}
	made := func() *record.Job {
		j := fieldtest.Filled[record.Job]()
		j.Request, j.Array = request, &record.Array{Limit: 2, Active: 1}
		return j
	}
	shown := "it is only shown, or read when the job is looked at"
	fieldtest.Compares(t, made, sameToQueue, fieldtest.LeftOut{
		"Name": shown, "Reason": shown, "Promised": shown, "Deadline": shown, "NoPreemptors": shown,
	})
}

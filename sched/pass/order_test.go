package pass

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-hpc/sluice/sched/queue"
	"github.com/sluice-hpc/sluice/sched/record"
)

// TestOrderIsMonotone: a job that is shorter or has waited longer never comes later, so a walk can skip parts of a queue.
func TestOrderIsMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		params := record.Params{
			Order:  record.Order(rapid.IntRange(1, 2).Draw(t, "order")),
			GuardS: rapid.Int64Range(0, 200_000).Draw(t, "guard"),
		}
		o := newOrder(&params, 500_000)
		c := &queue.Class{Family: &queue.Family{Share: rapid.Int64Range(1, 1<<16).Draw(t, "share")}}
		predicted, elig := rapid.Int64Range(0, 1<<32), rapid.Int64Range(0, 600_000)
		p, e := predicted.Draw(t, "predicted"), elig.Draw(t, "eligible")
		q, f := rapid.Int64Range(0, p).Draw(t, "shorter"), rapid.Int64Range(0, e).Draw(t, "earlier")
		if later, sooner := o.Key(c, p, e), o.Key(c, q, f); sooner > later {
			t.Fatalf("%d s, eligible at %d: %d; %d s, eligible at %d: %d", p, e, later, q, f, sooner)
		}
	})
}

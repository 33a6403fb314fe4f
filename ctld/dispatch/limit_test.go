package dispatch

import (
	"fmt"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/reactor"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestTimeLimitOrders: a changed time limit alone is an order, for a job and for a step. Only no limit is sent as 0: a limit of zero, which
// ends what runs, is sent as a second.
func TestTimeLimitOrders(t *testing.T) {
	b := newBench(t)
	l := b.d.Open("n1", nil)
	j := b.run([]byte("x"), "n1")
	b.step(j.Id, &pb.StepSpec{MinNodes: 1, TimeLimitS: 60})
	all(t, l)
	caller, id := reactor.Caller{Operator: true}, fmt.Sprint(j.Id)
	for _, c := range []struct{ limit, want string }{{"30", "1800"}, {"30", ""}, {"UNLIMITED", "0"}, {"60", "3600"}, {"0", "1"}} {
		set := []*pb.KeyValue{{Key: "TimeLimit", Value: c.limit}}
		for what, cmd := range map[string]reactor.Command{"job": reactor.UpdateJob{Caller: caller, IDs: []string{id}, Set: set},
			"step": reactor.UpdateStep{Caller: caller, ID: id + ".0", Set: set}} {
			b.do(cmd)
			got := ""
			for _, m := range all(t, l) {
				for _, o := range m.Steps {
					got += fmt.Sprint(o.LimitS)
				}
			}
			if got != c.want {
				t.Errorf("the %s's TimeLimit=%s is ordered as %q, want %q", what, c.limit, got, c.want)
			}
		}
	}
}

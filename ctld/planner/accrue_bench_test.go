package planner

import (
	"fmt"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/reactor"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// BenchmarkAccrue measures a second of the controller while 1000 jobs wait, without and with a limit on how many of them gain priority by
// age.
func BenchmarkAccrue(t *testing.B) {
	for _, of := range []string{"nobody", "users"} {
		t.Run("of="+of, func(t *testing.B) {
			b := limitBench(t)
			if of == "users" {
				b.limits("qos normal MaxJobsAccruePerUser 5")
			}
			for i := range 1000 {
				b.send("u1", []string{"lab", "group"}[i%2], "normal", &pb.JobSpec{Comment: fmt.Sprint(i)})
			}
			b.do(reactor.Tick{})
			for t.Loop() {
				b.do(reactor.Tick{})
			}
		})
	}
}

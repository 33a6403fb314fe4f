package planner

import (
	"github.com/sluice-hpc/sluice/ctld/convert"
	"github.com/sluice-hpc/sluice/ctld/reactor/resv"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/record"
)

// laterTimes is how many times of a reservation that recurs the scheduler knows beyond the present one. Since each of them bounds what
// starts before it, two would do for jobs; the rest are for promises and forecasts.
const laterTimes = 16

// reservation is one as the scheduler sees it, with the times to come.
func reservation(v *state.View, r *pb.ReservationRecord) *record.Reservation {
	s := convert.Reservation(v, r)
	for _, later := range resv.Later(r, laterTimes, v.Settings.Location()) {
		s.Again = append(s.Again, record.Span{Start: convert.Seconds(later.StartNs), End: convert.CeilSeconds(later.EndNs)})
	}
	return s
}

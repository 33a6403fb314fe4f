package planner

import (
	"github.com/sluice-hpc/sluice/ctld/convert"
	"github.com/sluice-hpc/sluice/ctld/reactor/resv"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/record"
)

// laterTimes is the number of later occurrences of a recurring reservation that the scheduler knows. Each bounds the jobs that start before
// it, so two would do for starts; the rest are for promises and forecasts.
const laterTimes = 16

// reservation returns the scheduler's record of a reservation, with its later occurrences.
func reservation(v *state.View, r *pb.ReservationRecord) *record.Reservation {
	s := convert.Reservation(v, r)
	for _, later := range resv.Later(r, laterTimes, v.Settings.Location()) {
		s.Again = append(s.Again, record.Span{Start: convert.Seconds(later.StartNs), End: convert.CeilSeconds(later.EndNs)})
	}
	return s
}

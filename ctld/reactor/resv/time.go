package resv

import (
	"slices"
	"time"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Reservations that recur (HOURLY, DAILY, WEEKDAY, WEEKEND, WEEKLY) are stored as their present or next occurrence, which advances when it
// has ended, as in Slurm. Days are those of the cluster's time zone, a parameter of every function here.

// periods are the flags with the days or hours to the next occurrence.
var periods = map[string]struct{ days, hours int }{"HOURLY": {0, 1}, "DAILY": {1, 0}, "WEEKDAY": {1, 0}, "WEEKEND": {1, 0},
	"WEEKLY": {7, 0}}

// recurs returns the flag by which a reservation recurs, "" if it does not.
func recurs(r *pb.ReservationRecord) string {
	for _, f := range r.Flags {
		if _, ok := periods[f]; ok {
			return f
		}
	}
	return ""
}

// next moves a start to the next occurrence: at the same time of day, across changes of summer time.
func next(flag string, startNS int64, zone *time.Location) int64 {
	p := periods[flag]
	at := time.Unix(0, startNS).In(zone)
	for {
		if at = at.AddDate(0, 0, p.days).Add(time.Duration(p.hours) * time.Hour); onDay(flag, at.Weekday()) {
			return at.UnixNano()
		}
	}
}

func onDay(flag string, d time.Weekday) bool {
	weekend := d == time.Saturday || d == time.Sunday
	switch flag {
	case "WEEKDAY":
		return !weekend
	case "WEEKEND":
		return weekend
	}
	return true
}

// maxOccurrences bounds the repetitions that are compared with another reservation: more than a year of days.
const maxOccurrences = 400

// repeatNS is the time for which two recurring reservations are compared: after a week their days repeat.
const repeatNS = 8 * 24 * 3600e9

// meets reports whether two reservations are active at the same time. The one that ends first advances to its next occurrence.
func meets(a, b *pb.ReservationRecord, zone *time.Location) bool {
	x, y := occurrence{recurs(a), a.StartNs, a.EndNs}, occurrence{recurs(b), b.StartNs, b.EndNs}
	last := max(x.start, y.start) + repeatNS
	for range maxOccurrences {
		if y.end < x.end {
			x, y = y, x
		}
		switch {
		case y.start < x.end:
			return true
		case x.flag == "", y.flag != "" && y.start > last:
			return false
		}
		x = x.before(y.start, zone)
	}
	return true // too far ahead to compare: refuse to be safe
}

// occurrence is one occurrence of a reservation; flag says how it recurs.
type occurrence struct {
	flag       string
	start, end int64
}

// before returns the next occurrence; for an hourly one, the last that ends by a moment, since all hours have the same length.
func (o occurrence) before(moment int64, zone *time.Location) occurrence {
	start := next(o.flag, o.start, zone)
	if skipped := (moment - (start + o.end - o.start)) / 3600e9; o.flag == "HOURLY" && skipped > 0 {
		start += skipped * 3600e9
	}
	return occurrence{o.flag, start, start + o.end - o.start}
}

// end drops reservations that are over, or moves them to their next occurrence.
func end(tx *state.Tx) {
	for _, r := range tx.Reservations() {
		if r.EndNs > tx.NowNS {
			continue
		}
		if recurs(r) != "" {
			tx.Emit(state.ReservationChanged{Reservation: following(tx, r, 0)})
			continue
		}
		holdJobsOf(tx, r)
		tx.Emit(state.ReservationEnded{Name: r.Name, Why: "it has ended"})
	}
}

// holdJobsOf holds the jobs that still wait for a reservation that is over, unless it has NO_HOLD_JOBS_AFTER. Their owners have to take
// them out of the reservation and release them (scontrol(1)).
func holdJobsOf(tx *state.Tx, r *pb.ReservationRecord) {
	var jobs []*pb.JobRecord
	for j := range tx.Jobs().All() {
		if j.Spec.Reservation == r.Name && state.Pending(j) {
			jobs = append(jobs, j)
		}
	}
	for _, j := range jobs {
		n := state.CloneJob(j)
		if slices.Contains(r.Flags, "NO_HOLD_JOBS_AFTER") {
			n.Spec = state.CloneSpec(n.Spec)
			n.Spec.Reservation = ""
		} else {
			n.Priority, n.StateFlags = 0, n.StateFlags|pb.JobResvDelHold
			n.Reason, n.ReasonDetail = "ReservationDeleted", "reservation "+r.Name+
				" is over; scontrol update JobId=… Reservation= and scontrol release let the job run without"
		}
		tx.Emit(state.JobChanged{Job: n, What: "reservation over"})
	}
}

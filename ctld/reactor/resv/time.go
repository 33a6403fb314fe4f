package resv

import (
	"slices"
	"time"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Reservations that recur (HOURLY, DAILY, WEEKDAY, WEEKEND, WEEKLY) are kept as their present or next occurrence, which moves on when
// it has ended, as in Slurm. Days are those of the cluster's time zone, which every function here is given.

// periods are the flags with the days or hours to the next occurrence.
var periods = map[string]struct{ days, hours int }{"HOURLY": {0, 1}, "DAILY": {1, 0}, "WEEKDAY": {1, 0}, "WEEKEND": {1, 0},
	"WEEKLY": {7, 0}}

// recurs is the flag by which a reservation recurs, "" for one that does not.
func recurs(r *pb.ReservationRecord) string {
	for _, f := range r.Flags {
		if _, ok := periods[f]; ok {
			return f
		}
	}
	return ""
}

// next moves a start to the next occurrence: at the same time of day, whatever summer time does.
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

// meets reports whether two reservations are in force at the same time.
func meets(a, b *pb.ReservationRecord, zone *time.Location) bool {
	if crosses(a, b) {
		return true
	}
	return laterMeets(a, b, zone) || laterMeets(b, a, zone)
}

func crosses(a, b *pb.ReservationRecord) bool { return a.StartNs < b.EndNs && b.StartNs < a.EndNs }

// laterMeets reports whether a repetition of a meets the present occurrence of b.
func laterMeets(a, b *pb.ReservationRecord, zone *time.Location) bool {
	flag := recurs(a)
	if flag == "" {
		return false
	}
	start, length := a.StartNs, a.EndNs-a.StartNs
	for range maxOccurrences {
		if start = next(flag, start, zone); start >= b.EndNs {
			return false
		}
		if start+length > b.StartNs {
			return true
		}
	}
	return true // beyond what is looked at: rather refuse
}

// end drops those whose time is over, or moves them to their next occurrence.
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
		tx.Emit(state.ReservationEnded{Name: r.Name, Why: "its time is over"})
	}
}

// holdJobsOf holds the jobs that still wait for a reservation that is over, unless it says NO_HOLD_JOBS_AFTER: they then wait for
// their owner to take them out of it and release them (scontrol(1)).
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

package resv

import (
	"slices"
	"time"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Tick applies the passing of time to reservations: it drops those that are over or moves them to their next occurrence, moves floating
// ones, ends unused ones (PURGE_COMP), and replaces nodes that are gone or taken (REPLACE, REPLACE_DOWN; nodes that are down are replaced
// unless STATIC_ALLOC is set).
func Tick(tx *state.Tx) {
	end(tx)
	keep(tx)
}

// floatStepNS is the precision of a floating reservation: each move is a commit and makes the scheduler look at everything anew.
const floatStepNS = 60e9

// keep maintains the reservations that are not over.
func keep(tx *state.Tx) {
	var uses map[string]int
	for _, r := range tx.Reservations() {
		if r.FloatS != 0 {
			float(tx, r)
			continue
		}
		if r.PurgeCompS != 0 && r.StartNs <= tx.NowNS && r.EndNs > tx.NowNS {
			if uses == nil {
				uses = usesOf(tx)
			}
			idle(tx, r, uses[r.Name])
		}
	}
	for _, r := range tx.Reservations() {
		replenish(tx, r)
	}
}

func float(tx *state.Tx, r *pb.ReservationRecord) {
	start := tx.NowNS - tx.NowNS%1e9 + int64(r.FloatS)*1e9
	if start-r.StartNs < floatStepNS {
		return
	}
	n := state.CloneReservation(r)
	n.StartNs, n.EndNs = start, start+r.EndNs-r.StartNs
	tx.Emit(state.ReservationChanged{Reservation: n})
}

// usesOf counts the jobs that wait for or run in each reservation.
func usesOf(tx *state.Tx) map[string]int {
	uses := map[string]int{}
	for j := range tx.Jobs().All() {
		if name := ofJob(j); name != "" && state.Active(j) {
			uses[name]++
		}
	}
	return uses
}

// ofJob returns the reservation that a job requests, or runs in without having requested it.
func ofJob(j *pb.JobRecord) string {
	if j.ResvName != "" && state.Live(j) {
		return j.ResvName
	}
	return j.Spec.Reservation
}

// idle ends a reservation that has been unused for its PURGE_COMP time; for a recurring one, this occurrence.
func idle(tx *state.Tx, r *pb.ReservationRecord, uses int) {
	switch {
	case uses > 0 && r.IdleNs == 0, uses == 0 && r.IdleNs != 0 && tx.NowNS-r.IdleNs < int64(r.PurgeCompS)*1e9:
	case uses == 0 && r.IdleNs != 0:
		if recurs(r) == "" {
			tx.Emit(state.ReservationEnded{Name: r.Name, Why: "nobody uses it"})
			return
		}
		tx.Emit(state.ReservationChanged{Reservation: following(tx, r, 1)})
	default:
		n := state.CloneReservation(r)
		n.IdleNs = 0
		if uses == 0 {
			n.IdleNs = tx.NowNS
		}
		tx.Emit(state.ReservationChanged{Reservation: n})
	}
}

// following returns a recurring reservation moved at least least times, and until it has not ended.
func following(tx *state.Tx, r *pb.ReservationRecord, least int) *pb.ReservationRecord {
	n := state.CloneReservation(r)
	n.IdleNs = 0
	for i := 0; i < least || n.EndNs <= tx.NowNS; i++ {
		start := next(recurs(r), n.StartNs, tx.Settings().Location())
		n.StartNs, n.EndNs = start, start+r.EndNs-r.StartNs
	}
	return n
}

// Later returns the next occurrences of a recurring reservation after its present one; at most most. zone is the cluster's.
func Later(r *pb.ReservationRecord, most int, zone *time.Location) []*pb.ReservationRecord {
	flag := recurs(r)
	if flag == "" {
		return nil
	}
	out := make([]*pb.ReservationRecord, 0, most)
	start := r.StartNs
	for range most {
		start = next(flag, start, zone)
		out = append(out, &pb.ReservationRecord{StartNs: start, EndNs: start + r.EndNs - r.StartNs})
	}
	return out
}

// replenish replaces nodes of a reservation whose nodes were chosen by number: those that are down, and under REPLACE those that jobs have
// taken. It replaces as many as it can; the rest stay.
func replenish(tx *state.Tx, r *pb.ReservationRecord) {
	has := func(f string) bool { return slices.Contains(r.Flags, f) }
	if has("STATIC") || has("SPEC_NODES") || has("MAINT") || r.AllNodes || len(r.Parts) > 0 || r.Nodes == "" || r.EndNs <= tx.NowNS {
		return
	}
	e := edit{tx: tx, old: r, r: state.CloneReservation(r)}
	names, err := hostlist.Expand(r.Nodes)
	if err != nil {
		return
	}
	var stay, gone []string
	for _, name := range names {
		n := tx.Node(name)
		if n == nil {
			continue // removed from slurm.conf: replaced when possible
		}
		if !n.Up() || has("REPLACE") && r.StartNs <= tx.NowNS && len(n.Jobs) > 0 {
			gone = append(gone, name)
		} else {
			stay = append(stay, name)
		}
	}
	if len(gone) == 0 {
		return
	}
	_, free, _ := e.pool() // it has none of the reservation's own nodes
	k := min(len(free), len(gone))
	if k == 0 {
		return
	}
	slices.SortStableFunc(gone, func(a, b string) int { return boolInt(tx.Node(a).Up()) - boolInt(tx.Node(b).Up()) }) // down nodes first
	chosen := slices.Concat(stay, gone[k:], free[:k])
	slices.SortFunc(chosen, hostlist.Compare)
	e.r.Nodes = hostlist.FoldSorted(chosen)
	e.measure()
	tx.Emit(state.ReservationChanged{Reservation: e.r})
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// skip moves a recurring reservation to its next occurrence (scontrol(1), Skip).
func (c Update) skip(tx *state.Tx, r *pb.ReservationRecord) any {
	if r == nil || recurs(r) == "" {
		return pb.NewProblem(pb.CodeResvNoSkip, "reservation %s does not recur", c.Name)
	}
	n := following(tx, r, 1)
	tx.Emit(state.ReservationChanged{Reservation: n})
	return Reserved{Name: n.Name, Seq: tx.Seq}
}

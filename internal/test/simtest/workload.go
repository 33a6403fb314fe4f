package simtest

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/reactor/resv"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/record"
)

// workload is what the jobs of a run request beyond CPUs and time. Each seed draws its own mixture.
type workload struct {
	arrays, depends, devices, licenses, reservations, shared bool
	// mode of partition debug, which yields to partition urgent; "" = nobody yields
	preempt string
}

// Available resources.
const (
	nodeGPUs   = 2
	licenses   = 3
	shareDepth = 2 // jobs on a CPU in partition shared
)

func (s *sim) drawWorkload() {
	w := &s.work
	w.arrays, w.depends, w.devices = s.chance(0.5), s.chance(0.5), s.chance(0.5)
	w.licenses, w.reservations, w.shared = s.chance(0.3), s.chance(0.4), s.chance(0.3)
	if s.chance(0.5) {
		w.preempt = []string{"REQUEUE", "CANCEL", "SUSPEND"}[s.rng.IntN(3)]
	}
}

// settings creates the configuration for the workload.
func (w *workload) settings(s *sim) {
	all := s.cfg.PartitionNodes["debug"]
	add := func(p *pb.PartitionRecord) {
		p.State, p.MaxTimeS, p.DefaultTimeS, p.MaxNodes = "UP", pb.Unlimited, 300, pb.Unlimited
		s.cfg.Partitions = append(s.cfg.Partitions, p)
		s.cfg.PartitionNodes[p.Name] = all
	}
	debug := &pb.PartitionRecord{Name: "debug", PriorityTier: 1}
	if w.preempt != "" {
		debug.PreemptMode, debug.GraceTimeS = w.preempt, uint32(s.rng.IntN(6))
		s.params.Preempt, s.params.PreemptMode = record.PreemptPartition,
			map[string]record.PreemptMode{"REQUEUE": record.PreemptRequeue, "CANCEL": record.PreemptCancel,
				"SUSPEND": record.PreemptSuspend}[w.preempt]
	}
	add(debug)
	if w.preempt != "" {
		add(&pb.PartitionRecord{Name: "urgent", PriorityTier: 10})
	}
	if w.shared {
		add(&pb.PartitionRecord{Name: "shared", PriorityTier: 1, Oversubscribe: fmt.Sprintf("FORCE:%d", shareDepth)})
	}
	if w.licenses {
		s.cfg.Settings.Licenses = []state.License{{Name: "lic", Count: licenses}}
	}
	if w.devices {
		for _, n := range s.cfg.Nodes {
			n.Gres = fmt.Sprintf("gpu:%d", nodeGPUs)
		}
	}
}

// dress adds properties of the workload to a submission.
func (w *workload) dress(s *sim, sub *submission) {
	spec := sub.spec
	var parts []string
	for _, p := range s.cfg.Partitions {
		if p.Name == "debug" || s.chance(0.3) {
			parts = append(parts, p.Name)
		}
	}
	if s.chance(0.5) {
		parts = parts[len(parts)-1:]
	}
	spec.Partition = strings.Join(parts, ",")
	if w.arrays && s.chance(0.4) {
		sub.tasks = 1 + s.rng.IntN(6)
		spec.Array = fmt.Sprintf("0-%d", sub.tasks-1)
		if s.chance(0.5) {
			spec.Array += fmt.Sprintf("%%%d", 1+s.rng.IntN(3))
		}
	}
	if w.devices && s.chance(0.5) {
		spec.TresPerNode = fmt.Sprintf("gres/gpu:%d", 1+s.rng.IntN(nodeGPUs))
	}
	if w.licenses && s.chance(0.4) {
		spec.Licenses = fmt.Sprintf("lic:%d", 1+s.rng.IntN(licenses))
	}
	if w.shared && s.chance(0.2) {
		spec.Sharing = "oversubscribe"
	}
}

// bind adds, at submission, references to existing objects: a job to depend on, a reservation.
func (w *workload) bind(s *sim, sub *submission, v *state.View) {
	spec := sub.spec
	if sub.bound {
		if r := spec.Reservation; r != "" && v.Reservation(r) == nil {
			spec.Reservation = ""
		}
		return
	}
	sub.bound = true
	if w.depends && s.chance(0.4) {
		other := s.subs[s.rng.IntN(len(s.subs))]
		switch {
		case s.chance(0.2):
			spec.Dependency, spec.Name = "singleton", "alone"
		case other.id != 0 && v.Jobs.Get(other.id) != nil:
			kinds := []string{"after", "afterany", "afterok", "afternotok", "aftercorr"}
			sub.depends, sub.on = kinds[s.rng.IntN(len(kinds))], other.id
			spec.Dependency = fmt.Sprintf("%s:%d", sub.depends, other.id)
			spec.KillOnInvalidDep = uint32(s.rng.IntN(3))
		}
	}
	if r := s.anyReservation(v); r != nil && s.chance(0.4) && strings.Contains(r.Users, "u") && !strings.HasPrefix(r.Users, "-") {
		spec.Reservation = r.Name
	}
}

func (s *sim) anyReservation(v *state.View) *pb.ReservationRecord {
	if list := v.Reservations(); len(list) > 0 {
		return list[s.rng.IntN(len(list))]
	}
	return nil
}

// reserve creates and deletes reservations periodically.
func (s *sim) reserve() {
	if s.calm {
		return
	}
	s.after(s.between(0, 2*time.Minute), s.reserve)
	if s.ctl == nil {
		return
	}
	cmd := resv.Update{Operator: true}
	if r := s.anyReservation(s.ctl.View()); r != nil && s.chance(0.3) {
		cmd.Name, cmd.Delete = r.Name, true
	} else {
		s.made++
		cmd.Name, cmd.Create, cmd.Set = fmt.Sprintf("r%d", s.made), true, s.anyPlace()
	}
	s.ctl.send(cmd, func(r any) {
		s.logf("reservation %s: %v -> %v", cmd.Name, cmd.Set, r)
	})
}

func (s *sim) anyPlace() []*pb.KeyValue {
	set := map[string]string{"StartTime": timespec.FormatUnix(s.clock().Add(time.Duration(s.rng.IntN(180)) * time.Second)),
		"Duration": strconv.Itoa(1 + s.rng.IntN(10)),
		"Users":    []string{"u", "other", "-other"}[s.rng.IntN(3)]}
	flags := []string{}
	for _, f := range []string{"IGNORE_JOBS", "IGNORE_JOBS", "MAGNETIC", "PURGE_COMP=1", "NO_HOLD_JOBS_AFTER", "OVERLAP", "MAINT"} {
		if s.chance(0.25) {
			flags = append(flags, f)
		}
	}
	if s.chance(0.3) { // cores
		set["CoreCnt"] = strconv.Itoa(1 + s.rng.IntN(nodeCPUs*len(s.nodes)))
		flags = append(flags, "IGNORE_JOBS")
		if s.work.devices && s.chance(0.5) {
			set["TRES"] = fmt.Sprintf("gres/gpu=%d", 1+s.rng.IntN(nodeGPUs))
		}
	} else {
		set["NodeCnt"] = strconv.Itoa(1 + s.rng.IntN(len(s.nodes)))
		for _, f := range []string{"REPLACE", "STATIC_ALLOC", "HOURLY"} {
			if s.chance(0.15) {
				flags = append(flags, f)
				break
			}
		}
	}
	set["Flags"] = strings.Join(flags, ",")
	var out []*pb.KeyValue
	for _, k := range []string{"StartTime", "Duration", "Users", "CoreCnt", "NodeCnt", "TRES", "Flags"} {
		if set[k] != "" {
			out = append(out, &pb.KeyValue{Key: k, Value: set[k]})
		}
	}
	return out
}

// anyID returns the id of a job, or of one or several of its tasks.
func (s *sim) anyID(sub *submission) string {
	id := strconv.Itoa(int(sub.id))
	if sub.tasks == 0 || s.chance(0.5) {
		return id
	}
	k := s.rng.IntN(sub.tasks)
	if s.chance(0.3) {
		return fmt.Sprintf("%s_[%d-%d]", id, k, sub.tasks-1)
	}
	return fmt.Sprintf("%s_%d", id, k)
}

// change returns an operator's update of a job.
func (s *sim) change(sub *submission, id string) {
	kv := &pb.KeyValue{}
	switch s.rng.IntN(6) {
	case 0, 1:
		kv.Key, kv.Value = "TimeLimit", strconv.Itoa(1+s.rng.IntN(6))
	case 2:
		kv.Key, kv.Value = "Nice", strconv.Itoa(s.rng.IntN(100))
	case 3:
		kv.Key, kv.Value = "Partition", s.cfg.Partitions[s.rng.IntN(len(s.cfg.Partitions))].Name
	case 4:
		kv.Key = "Dependency"
		sub.depends = "" // whatever it was
	case 5:
		if sub.tasks == 0 {
			return
		}
		kv.Key, kv.Value = "ArrayTaskThrottle", strconv.Itoa(s.rng.IntN(4))
	}
	s.order(reactor.UpdateJob{Caller: operator, IDs: []string{id}, Set: []*pb.KeyValue{kv}})
}

// settleJobs removes, in the calm, obstacles that would keep jobs from ever running: dependencies that cannot be met, and
// reservations.
func (s *sim) settleJobs() {
	for _, r := range s.ctl.View().Reservations() {
		s.ctl.send(resv.Update{Operator: true, Name: r.Name, Delete: true}, nil)
	}
	for j := range s.ctl.View().Jobs.All() {
		if !state.Pending(j) {
			continue
		}
		ids := []string{strconv.Itoa(int(j.Id))}
		if j.Spec.Reservation != "" {
			s.order(reactor.UpdateJob{Caller: operator, IDs: ids, Set: []*pb.KeyValue{{Key: "ReservationName"}}})
		}
		if j.DependencyNever {
			if sub := s.witness.submissionOf(j); sub != nil {
				sub.depends = ""
			}
			s.order(reactor.UpdateJob{Caller: operator, IDs: ids, Set: []*pb.KeyValue{{Key: "Dependency"}}})
		}
	}
}

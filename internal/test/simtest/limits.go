package simtest

import (
	"fmt"
	"slices"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Checks of resources: no resource is over-allocated, judged by the processes on each node.

// room checks the live steps of a node when a step starts there: each core has one job, or as many as share it; the memory fits;
// each device has one job. Suspended jobs have given up their cores and nothing else.
func (w *witness) room(st *step) {
	cores := map[int][]*step{}
	devices := map[string]*step{}
	mem := uint64(0)
	for _, o := range w.steps {
		if !o.live || o.at.node != st.at.node || o.share == nil {
			continue
		}
		mem += o.share.MemMib
		for _, d := range o.share.Devices {
			name := fmt.Sprint(d.Name, d.Index)
			if by := devices[name]; by != nil && by.at.Job != o.at.Job {
				w.s.fail("%s and %s have device %s of %s", keyWords(by.at.Key), keyWords(o.at.Key), name, st.at.node)
			}
			devices[name] = o
		}
		if !w.paused[o.at.attempt()] {
			for k := range o.cpus.All() {
				cores[k] = append(cores[k], o)
			}
		}
	}
	if mem > nodeMiB {
		w.s.fail("%s starts on %s, where %d MiB of %d are used then", keyWords(st.at.Key), st.at.node, mem, nodeMiB)
	}
	for k, list := range cores {
		depth := shareDepth
		for _, o := range list {
			if o.partition != "shared" {
				depth = 1
			}
		}
		if len(list) > 1 {
			w.stats.Seen["shared core"]++
		}
		if len(list) > depth {
			w.s.fail("core %d of %s is had by %d jobs, %s among them", k, st.at.node, len(list), keyWords(list[0].at.Key))
		}
	}
}

// capacity checks what only the controller can count: licenses.
func (w *witness) capacity(v *state.View) {
	if !w.s.work.licenses {
		return
	}
	used := 0
	for j := range v.Jobs.All() {
		if n := 0; state.Live(j) && j.Spec.Licenses != "" {
			fmt.Sscanf(j.Spec.Licenses, "lic:%d", &n)
			used += n
		}
	}
	if used > licenses {
		w.s.fail("%d licenses of %d are used", used, licenses)
	}
}

// allowed checks that a job which was just started was allowed to: by its array's limit, its dependency, and reservations.
func (w *witness) allowed(j *pb.JobRecord, v *state.View) {
	w.count(j, v)
	if j.ArrayThrottle != 0 {
		live := 0
		for o := range v.Jobs.All() {
			if o.ArrayJobId == j.ArrayJobId && state.Live(o) {
				live++
			}
		}
		if live > int(j.ArrayThrottle) {
			w.s.fail("%s is the %dth of its array to run, the limit is %d", jobWords(j), live, j.ArrayThrottle)
		}
	}
	if sub := w.submissionOf(j); sub != nil && sub.depends != "" && sub.tasks == 0 {
		w.dependency(j, sub)
	}
	for _, r := range v.Reservations() {
		if w.before != nil && w.before.Reservation(r.Name) == r { // not made in the same commit for nodes in use
			w.reserved(j, r)
		}
	}
}

// count notes the properties of a starting job, so that a test can see that the simulations cover them.
func (w *witness) count(j *pb.JobRecord, v *state.View) {
	sub := w.submissionOf(j)
	for what, is := range map[string]bool{
		"array task": j.IsArrayTask, "array task of a limited array": j.ArrayThrottle != 0, "dependency": sub != nil && sub.depends != "",
		"devices": len(j.Alloc[0].Devices) > 0, "licenses": j.Spec.Licenses != "", "in a reservation": j.Spec.Reservation != "",
		"drawn into a reservation": j.ResvName != "",
		"beside a reservation of cores": slices.ContainsFunc(v.Reservations(), func(r *pb.ReservationRecord) bool {
			return slices.ContainsFunc(r.Parts, func(p *pb.NodeAlloc) bool { return p.Node == j.BatchHost })
		}),
		"beside a reservation of devices": slices.ContainsFunc(v.Reservations(), func(r *pb.ReservationRecord) bool {
			return slices.ContainsFunc(r.Parts, func(p *pb.NodeAlloc) bool { return p.Node == j.BatchHost && len(p.Devices) > 0 })
		}),
	} {
		if is {
			w.stats.Seen[what]++
		}
	}
}

func (w *witness) submissionOf(j *pb.JobRecord) *submission {
	if sub := w.acks[j.Id]; sub != nil {
		return sub
	}
	return w.acks[j.ArrayJobId]
}

// dependency checks that the event that the job waits for has happened. A job that ended and was requeued counts as ended.
func (w *witness) dependency(j *pb.JobRecord, sub *submission) {
	if on := w.acks[sub.on]; on == nil || on.tasks != 0 || w.forgotten[sub.on] { // a forgotten job counts as satisfied
		return
	}
	ends := w.outcomes[sub.on]
	ok := false
	switch sub.depends {
	case "after":
		ok = w.began[sub.on] || len(ends) > 0
	case "afterany":
		ok = len(ends) > 0
	case "afterok", "aftercorr":
		ok = ends[pb.JobState_JOB_COMPLETED]
	case "afternotok":
		ok = len(ends) > 1 || len(ends) == 1 && !ends[pb.JobState_JOB_COMPLETED]
	}
	if !ok {
		w.s.fail("%s starts, and its dependency %s:%d is not met: %v", jobWords(j), sub.depends, sub.on, ends)
	}
}

// reserved checks that a starting job stays off nodes and cores of other jobs' reservations for as long as it may run.
func (w *witness) reserved(j *pb.JobRecord, r *pb.ReservationRecord) {
	mine := j.Spec.Reservation
	if j.ResvName != "" {
		mine = j.ResvName
	}
	if own := w.view.Reservation(mine); mine == r.Name || own != nil && (has(own, "MAINT") || has(own, "OVERLAP") && !has(r, "MAINT")) {
		return
	}
	late := int64(0)
	if w.s.clocks.set { // perhaps back, after the plan was made
		late = secondsOf
	}
	if j.EndNs != 0 && j.EndNs <= r.StartNs+secondsOf || r.EndNs <= j.StartNs+late {
		return
	}
	names, _ := hostlist.Expand(r.Nodes)
	for _, a := range j.Alloc {
		for _, name := range names {
			if a.Node == name && (len(r.Parts) == 0 || overlapsPart(r, a)) {
				w.s.fail("%s starts on %s (cores %s) until %d, which reservation %s has from %d: %v", jobWords(j), name, a.CpuIds, j.EndNs,
					r.Name, r.StartNs, r)
			}
		}
	}
}

// secondsOf allows for plans in whole seconds, and for the moment until they are carried out.
const secondsOf = 3e9

func has(r *pb.ReservationRecord, flag string) bool {
	for _, f := range r.Flags {
		if f == flag {
			return true
		}
	}
	return false
}

func overlapsPart(r *pb.ReservationRecord, a *pb.NodeAlloc) bool {
	cores, _ := state.ParseCores(a.CpuIds)
	for _, p := range r.Parts {
		part, _ := state.ParseCores(p.CpuIds)
		if p.Node != a.Node {
			continue
		}
		both := slices.ContainsFunc(p.Devices, func(d *pb.GresDevice) bool {
			return slices.ContainsFunc(a.Devices, func(o *pb.GresDevice) bool { return o.Name == d.Name && o.Index == d.Index })
		})
		if both || part.Overlaps(cores) {
			return true
		}
	}
	return false
}

// patience is how long a job may wait without a reason, when nothing goes wrong: until the planner has seen it.
const patience = 30e9

// reasons checks, in the calm, that every waiting job has a reason.
func (w *witness) reasons(v *state.View, calmNS int64) {
	for j := range v.Jobs.All() {
		if state.Pending(j) && (j.Reason == "None" || j.Reason == "") &&
			w.s.now-max(j.EligibleNs, j.SubmitNs, calmNS, w.startedNS, w.touched[j.Id]) > patience {
			w.s.fail("%s waits without a reason", jobWords(j))
		}
	}
}

// accounted checks that every task of every array has ended at least once.
func (w *witness) accounted() {
	for id, sub := range w.acks {
		if n := len(w.tasksEnded[id]); sub.tasks != 0 && n != sub.tasks {
			w.s.fail("%d of the %d tasks of array %d have ended", n, sub.tasks, id)
		}
	}
}

// taskEnded notes the tasks that a terminal record stands for, or stood for when they were cancelled.
func (w *witness) taskEnded(j *pb.JobRecord) {
	if j.ArrayJobId == 0 {
		return
	}
	if w.tasksEnded[j.ArrayJobId] == nil {
		w.tasksEnded[j.ArrayJobId] = map[uint32]bool{}
	}
	if j.IsArrayTask {
		w.tasksEnded[j.ArrayJobId][j.ArrayTaskId] = true
	}
	for k := range state.ArraySet(j).With(state.Dropped(j)).All() {
		w.tasksEnded[j.ArrayJobId][k] = true
	}
}

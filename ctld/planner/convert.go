package planner

import (
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/conf/tres"
	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/convert"
	"github.com/sluice-hpc/sluice/ctld/limit"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/reason"
	"github.com/sluice-hpc/sluice/sched/record"
)

func pendingJob(v *state.View, j *pb.JobRecord, req *record.Request) *record.Job {
	if req == nil {
		req = convert.Request(j.Spec, v.Users())
	}
	s := &record.Job{ID: j.Id, Name: j.Spec.Name, User: j.Spec.User, Groups: j.Spec.Groups, Account: j.Spec.Account, QOS: j.Spec.Qos,
		Request:    req,
		Partitions: strings.Split(convert.PartitionList(v, j.Spec), ","), Submit: convert.Seconds(j.SubmitNs),
		Eligible: convert.Seconds(j.EligibleNs), Accrue: convert.Seconds(j.AccrueNs),
		Begin: convert.CeilSeconds(j.Spec.BeginNs), Deadline: convert.Seconds(j.Spec.DeadlineNs), TimeMinS: int64(j.Spec.TimeMinS),
		Nice:   j.Spec.Nice,
		Reason: reasonOf(j), Promised: j.Promised}
	if j.Spec.TimeLimitS != 0 {
		s.LimitS = int64(j.Spec.TimeLimitS)
		if j.Spec.TimeLimitS == pb.Unlimited {
			s.LimitS = record.Forever
		}
	}
	if j.Spec.Priority != 0 {
		s.Priority = j.Spec.Priority
	} else if v.Settings.PriorityBasic {
		s.Priority = j.Priority
	}
	if j.AccrueNs == 0 && len(limit.Accrue(v, j)) > 0 {
		s.Accrue = record.Forever
	}
	switch {
	case j.DependencyNever:
		s.Dependency = record.DependencyNever
	case j.Dependency != "":
		s.Dependency = record.DependencyWaits
	}
	if j.Priority == 0 {
		s.Hold, s.Priority = record.HeldUser, 0
		if j.HoldAdmin {
			s.Hold = record.HeldAdmin
		}
		if strings.HasPrefix(j.Reason, "launch_failed") || j.Reason == pb.ReasonRequeuedHeld || j.Reason == "JobHoldMaxRequeue" {
			s.Hold, s.HoldReason = record.HeldRequeue, j.Reason
		}
	} else if v.Uncertain(j) {
		s.Hold, s.HoldReason = record.HeldRequeue, state.UncertainReason
	} else if open, why := admit.Open(v, s.Partitions, j.Spec); len(open) > 0 {
		s.Partitions = open
	} else { // as if held, until the rules change
		s.Hold, s.HoldReason = record.HeldRequeue, why
	}
	return s
}

func reasonOf(j *pb.JobRecord) reason.Reason {
	code, _, _ := strings.Cut(j.Reason, ",")
	r := reason.Reason{Code: reason.Code(code)}
	if code != j.Reason {
		r.Text = j.Reason
	}
	return r
}

func runningJob(v *state.View, j *pb.JobRecord, job *record.Job) *record.Run {
	if job == nil {
		job = pendingJob(v, j, nil)
	}
	r := &record.Run{ID: j.Id, Task: -1, Job: job, Partition: j.Partition, Reservation: j.ResvName, Priority: j.Priority,
		Start: convert.Seconds(j.StartNs), End: record.Forever,
		Suspended: slices.ContainsFunc(j.Alloc, (*pb.NodeAlloc).GetCpusFree), NotPreemptable: j.StopReason != "" || j.PreemptedBy != ""}
	if j.EndNs != 0 {
		r.End = convert.CeilSeconds(j.EndNs) // of a job being stopped: its end is past, and the scheduler takes that as "any moment"
	}
	for _, a := range j.Alloc {
		if a.Ended {
			continue
		}
		c, _ := state.ParseCores(a.CpuIds) // cannot fail: this program wrote it
		r.Allocs = append(r.Allocs, record.Alloc{Node: a.Node, Tasks: int(a.Tasks), CPUs: int(a.Cpus), Cores: record.Bits(c),
			MemMiB: int64(a.MemMib), Gres: convert.GresAllocs(v.Node(a.Node), a)})
	}
	return r
}

// command converts a plan to a command for the reactor.
func (m *mirror) command(v *state.View, plan *record.Plan) reactor.ApplyPlan {
	cmd := reactor.ApplyPlan{Reservations: v.Reservations(), Clock: v.Clock()}
	for i := range plan.Start {
		cmd.Starts = append(cmd.Starts, m.start(v, &plan.Start[i]))
	}
	expected := make(map[uint32]*record.Reserve, len(plan.Reserve))
	for i := range plan.Reserve {
		expected[plan.Reserve[i].ID] = &plan.Reserve[i]
	}
	for i := range plan.Reasons {
		cmd.Shown = append(cmd.Shown, shown(v, plan.Reasons[i].ID, plan.Reasons[i].Reason.String(), expected[plan.Reasons[i].ID]))
		delete(expected, plan.Reasons[i].ID)
	}
	for i := range plan.Reserve {
		id := plan.Reserve[i].ID
		r := expected[id]
		if j := v.Jobs.Get(id); r != nil && j != nil && (j.ExpectedStartNs != r.At*1e9 || r.First && !j.Promised) {
			cmd.Shown = append(cmd.Shown, shown(v, id, j.Reason, r))
			delete(expected, id)
		}
	}
	for _, p := range plan.Preempt {
		cmd.Preempt = append(cmd.Preempt, reactor.PlannedPreempt{ID: p.ID, Mode: convert.PreemptModes[p.Mode], GraceS: p.GraceS,
			For: p.For, Why: p.Why})
	}
	cmd.Never = plan.Never
	return cmd
}

func shown(v *state.View, id uint32, reason string, r *record.Reserve) reactor.PlannedShow {
	s := reactor.PlannedShow{ID: id, Reason: reason}
	if j := v.Jobs.Get(id); j != nil && reason == j.Reason {
		s.Detail, s.ExpectedNS, s.ExpectedNodes = j.ReasonDetail, j.ExpectedStartNs, j.ExpectedNodes
	}
	s.Promised = r != nil && r.First
	if r != nil && r.At < record.Forever {
		s.ExpectedNS, s.ExpectedNodes = r.At*1e9, hostlist.FoldSorted(r.Nodes)
	}
	return s
}

func (m *mirror) start(v *state.View, s *record.Start) reactor.PlannedStart {
	p := reactor.PlannedStart{Reservation: s.Reservation, ID: s.Job.ID, Task: s.Task, Partition: s.Partition, Priority: s.Priority,
		Backfilled: s.Backfilled, LimitS: pb.Unlimited}
	if src, ok := m.sources[s.Job.ID]; ok {
		p.Spec = src.spec
	}
	if s.LimitS > 0 && s.LimitS < int64(pb.Unlimited) {
		p.LimitS = uint32(s.LimitS)
	}
	var names []string
	var cpus uint32
	var mem uint64
	var held []tres.Gres
	for i := range s.Allocs {
		a := &s.Allocs[i]
		list, text := devices(v.Node(a.Node), a.Gres)
		p.Alloc = append(p.Alloc, &pb.NodeAlloc{Node: a.Node, Cpus: uint32(a.CPUs), CpuIds: state.Cores(a.Cores).String(),
			MemMib: uint64(a.MemMiB), Tasks: uint32(a.Tasks), Gres: text, Devices: list})
		for _, g := range a.Gres {
			held = append(held, tres.Gres{Name: g.Name, Type: g.Type, Count: uint64(g.Count)})
		}
		names = append(names, a.Node)
		cpus += uint32(a.CPUs)
		mem += uint64(a.MemMiB)
	}
	p.NodeList, p.AllocTRES = hostlist.FoldSorted(names), admit.TRES(cpus, mem, uint32(len(names)))+admit.GresTRES(v.Settings, held)
	return p
}

package planner

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/conf/tres"
	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched"
)

func seconds(ns int64) int64 { return ns / 1e9 }

// node makes the scheduler's record of a node. With all, it has also what it does not give out now (nodeGres).
func node(n *state.Node, all bool) *sched.Node {
	s := &sched.Node{Name: n.Name, State: nodeState(n), Reason: n.Reason, CPUs: int(n.Cpus), Sockets: int(n.Sockets),
		CoresPerSocket: int(n.NodeRecord.Cores), Threads: int(n.Threads), MemMiB: int64(n.RealMemoryMib), SpecMemMiB: int64(n.MemSpecMib),
		TmpMiB: int64(n.TmpDiskMib), Weight: int(n.Weight)}
	s.Gres, s.Withheld = nodeGres(n, all), withheld(n)
	s.Switch = strings.Join(n.Switches, "/")
	if n.ActiveFeatures != "" {
		s.Features = strings.Split(n.ActiveFeatures, ",")
	}
	return s
}

var partitionStates = map[string]sched.PartitionState{"UP": sched.PartitionUp, "DOWN": sched.PartitionDown, "DRAIN": sched.PartitionDrain, "INACTIVE": sched.PartitionInactive}

func partition(v *state.View, p *pb.PartitionRecord) *sched.Partition {
	s := &sched.Partition{Name: p.Name, Nodes: v.PartitionNodes(p.Name), State: partitionStates[p.State], PriorityTier: uint16(p.PriorityTier),
		PriorityFactor: uint16(p.PriorityJobFactor), MaxTimeS: limit(p.MaxTimeS), DefaultTimeS: limit(p.DefaultTimeS), MinNodes: int(p.MinNodes),
		MaxCPUsPerNode: int(p.MaxCpusPerNode), LLN: p.Lln, ExclusiveUser: p.ExclusiveUser, PreemptMode: PreemptMode(p.PreemptMode), GraceTimeS: int64(p.GraceTimeS)}
	if p.MaxNodes != pb.Unlimited {
		s.MaxNodes = int(p.MaxNodes)
	}
	if p.MaxCpusPerNode == pb.Unlimited {
		s.MaxCPUsPerNode = 0
	}
	if s.MaxMemNodeMiB = int64(p.MaxMemPerNodeMib); s.MaxMemNodeMiB == 0 && p.MaxMemPerCpuMib == 0 {
		s.MaxMemNodeMiB = int64(v.Settings.MaxMemPerNodeMiB)
	}
	mode, jobs := state.OverSubscribe(p)
	s.Share, s.MaxShare = shareModes[mode], jobs
	return s
}

var shareModes = map[string]sched.ShareMode{"NO": sched.ShareNo, "EXCLUSIVE": sched.ShareExclusive, "YES": sched.ShareYes, "FORCE": sched.ShareForce}

var preemptModes = map[sched.PreemptMode]string{sched.PreemptRequeue: "REQUEUE", sched.PreemptCancel: "CANCEL", sched.PreemptSuspend: "SUSPEND"}

// PreemptMode reads PreemptMode= of a partition or the cluster; GANG and WITHIN say nothing of what happens to the victim.
func PreemptMode(text string) sched.PreemptMode {
	for _, word := range strings.Split(strings.ToUpper(text), ",") {
		for mode, name := range preemptModes {
			if word == name {
				return mode
			}
		}
	}
	return sched.PreemptOff
}

// limit turns a limit into the scheduler's: 0 is none.
func limit(s uint32) int64 {
	if s == pb.Unlimited {
		return 0
	}
	return int64(s)
}

func pendingJob(v *state.View, j *pb.JobRecord, req *sched.Request) *sched.Job {
	if req == nil {
		req = Request(j.Spec)
	}
	s := &sched.Job{ID: j.Id, Name: j.Spec.Name, User: j.Spec.User, Groups: j.Spec.Groups, Account: j.Spec.Account, QOS: j.Spec.Qos, Request: req,
		Partitions: strings.Split(admit.PartitionList(v, j.Spec), ","), Submit: seconds(j.SubmitNs), Eligible: seconds(j.EligibleNs),
		Begin: ceilSeconds(j.Spec.BeginNs), Deadline: seconds(j.Spec.DeadlineNs), TimeMinS: int64(j.Spec.TimeMinS), Nice: j.Spec.Nice,
		Reason: reasonOf(j), Promised: j.Promised}
	if j.Spec.TimeLimitS != 0 {
		s.LimitS = int64(j.Spec.TimeLimitS)
		if j.Spec.TimeLimitS == pb.Unlimited {
			s.LimitS = sched.Forever
		}
	}
	if j.Spec.Priority != 0 {
		s.Priority = j.Spec.Priority
	} else if v.Settings.PriorityBasic {
		s.Priority = j.Priority
	}
	switch {
	case j.DependencyNever:
		s.Dependency = sched.DependencyNever
	case j.Dependency != "":
		s.Dependency = sched.DependencyWaits
	}
	if j.Priority == 0 {
		s.Hold, s.Priority = sched.HeldUser, 0
		if j.HoldAdmin {
			s.Hold = sched.HeldAdmin
		}
		if strings.HasPrefix(j.Reason, "launch_failed") || strings.HasPrefix(j.Reason, "job requeued") || j.Reason == "JobHoldMaxRequeue" {
			s.Hold, s.HoldReason = sched.HeldRequeue, j.Reason
		}
	} else if open, why := admitting(v, s.Partitions, j.Spec); len(open) > 0 {
		s.Partitions = open
	} else { // until the rules change, as if it were held
		s.Hold, s.HoldReason = sched.HeldRequeue, why
	}
	return s
}

// admitting are those of a job's partitions whose rules on accounts and QOS do not keep it out; why is the first one's rule that does.
// Of a list only those that are for such jobs: one is enough for a submission.
func admitting(v *state.View, names []string, spec *pb.JobSpec) (open []string, why string) {
	for _, name := range names {
		bar := ""
		if p := v.Partition(name); p != nil {
			bar = admit.Barred(p, spec)
		}
		if bar == "" {
			open = append(open, name)
		}
		why = cmp.Or(why, bar)
	}
	if len(names) > 1 {
		usable := slices.DeleteFunc(slices.Clone(open), func(name string) bool {
			p := v.Partition(name)
			return p != nil && !admit.Usable(v, p, spec)
		})
		if len(usable) > 0 {
			open = usable
		}
	}
	return open, why
}

// ceilSeconds rounds up, so that nothing begins before its time.
func ceilSeconds(ns int64) int64 { return (ns + 1e9 - 1) / 1e9 }

func reasonOf(j *pb.JobRecord) sched.Reason {
	code, _, _ := strings.Cut(j.Reason, ",")
	r := sched.Reason{Code: sched.Code(code)}
	if code != j.Reason {
		r.Text = j.Reason
	}
	return r
}

// Request is what a specification asks for, in the scheduler's terms.
func Request(s *pb.JobSpec) *sched.Request {
	r := &sched.Request{MinNodes: int(s.MinNodes), MaxNodes: int(s.MaxNodes), Tasks: int(s.NumTasks), CPUsPerTask: int(s.CpusPerTask),
		TasksPerNode: int(s.NtasksPerNode), MinCPUs: int(s.PnMinCpus), Overcommit: s.Overcommit, Sockets: int(s.SocketsPerNode),
		CoresPerSocket: int(s.CoresPerSocket), ThreadsPerCore: int(s.ThreadsPerCore), MemNodeMiB: int64(s.MemPerNodeMib), MemCPUMiB: int64(s.MemPerCpuMib),
		MemGPUMiB: int64(s.MemPerGpuMib), MemSaid: s.MemPerNodeMib != 0 || s.MemAll, TmpMiB: int64(s.TmpDiskMib), Features: s.Features,
		Contiguous: s.Contiguous, Spread: s.Spread, UseMinNodes: s.UseMinNodes, Reservation: s.Reservation,
		Exclusive: s.Sharing == "exclusive", ExclusiveUser: s.Sharing == "user", Oversubscribe: s.Sharing == "oversubscribe"}
	r.Gres, r.CPUsPerGPU, r.Binding = gresRequests(s), cpusPerGPU(s), strings.Contains(s.GresFlags, "enforce-binding")
	if oneTaskPerGPU(s) { // and a job has shares of one GPU of a node
		if r.Tasks == 0 {
			r.Tasks = max(r.MinNodes, 1) * max(r.TasksPerNode, 1)
		}
		r.TasksPerNode = 1
	}
	if s.Licenses != "" {
		r.Licenses = licenses(s.Licenses)
	}
	if s.NodesSet != "" {
		r.NodeCounts = nodeCounts(s.NodesSet)
	}
	r.Switches, r.SwitchWaitS = switches(s.Switches)
	r.NodeList, _ = hostlist.Expand(s.ReqNodes) // admit has read both
	r.Exclude, _ = hostlist.Expand(s.ExcNodes)
	return r
}

// switches reads "count[@max-time]" (sbatch(1), --switches); admit has checked it. Without a time waitS is 0; a time of 0 is the
// shortest there is.
func switches(text string) (count int, waitS int64) {
	n, wait, timed := strings.Cut(text, "@")
	count, _ = strconv.Atoi(n)
	switch t, err := timespec.ParseSeconds(wait); {
	case !timed || err != nil:
	case t == timespec.Unlimited:
		waitS = sched.Forever
	default:
		waitS = max(t, 1)
	}
	return count, waitS
}

func runningJob(v *state.View, j *pb.JobRecord, job *sched.Job) *sched.Run {
	if job == nil {
		job = pendingJob(v, j, nil)
	}
	r := &sched.Run{ID: j.Id, Task: -1, Job: job, Partition: j.Partition, Reservation: j.ResvName, Priority: j.Priority, Start: seconds(j.StartNs), End: sched.Forever,
		Suspended: slices.ContainsFunc(j.Alloc, (*pb.NodeAlloc).GetCpusFree), NotPreemptable: j.StopReason != "" || j.PreemptedBy != ""}
	if j.EndNs != 0 {
		r.End = ceilSeconds(j.EndNs) // of one being stopped: its end, which is past; the scheduler takes that as "any moment"
	}
	for _, a := range j.Alloc {
		if a.Ended {
			continue
		}
		c, _ := state.ParseCores(a.CpuIds) // written by this program
		r.Allocs = append(r.Allocs, sched.Alloc{Node: a.Node, Tasks: int(a.Tasks), CPUs: int(a.Cpus), Cores: sched.Bits(c), MemMiB: int64(a.MemMib), Gres: gresAllocs(v.Node(a.Node), a)})
	}
	return r
}

// command turns a plan into what the reactor applies.
func (m *mirror) command(v *state.View, plan *sched.Plan) reactor.ApplyPlan {
	cmd := reactor.ApplyPlan{Reservations: v.Reservations()}
	for i := range plan.Start {
		cmd.Starts = append(cmd.Starts, m.start(v, &plan.Start[i]))
	}
	expected := make(map[uint32]*sched.Reserve, len(plan.Reserve))
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
		cmd.Preempt = append(cmd.Preempt, reactor.PlannedPreempt{ID: p.ID, Mode: preemptModes[p.Mode], GraceS: p.GraceS, For: p.For, Why: p.Why})
	}
	cmd.Never = plan.Never
	return cmd
}

func shown(v *state.View, id uint32, reason string, r *sched.Reserve) reactor.PlannedShow {
	s := reactor.PlannedShow{ID: id, Reason: reason}
	if j := v.Jobs.Get(id); j != nil && reason == j.Reason {
		s.Detail, s.ExpectedNS, s.ExpectedNodes = j.ReasonDetail, j.ExpectedStartNs, j.ExpectedNodes
	}
	s.Promised = r != nil && r.First
	if r != nil && r.At < sched.Forever {
		s.ExpectedNS, s.ExpectedNodes = r.At*1e9, hostlist.FoldSorted(r.Nodes)
	}
	return s
}

func (m *mirror) start(v *state.View, s *sched.Start) reactor.PlannedStart {
	p := reactor.PlannedStart{Reservation: s.Reservation, ID: s.Job.ID, Task: s.Task, Partition: s.Partition, Priority: s.Priority, Backfilled: s.Backfilled, LimitS: pb.Unlimited}
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
		p.Alloc = append(p.Alloc, &pb.NodeAlloc{Node: a.Node, Cpus: uint32(a.CPUs), CpuIds: state.Cores(a.Cores).String(), MemMib: uint64(a.MemMiB), Tasks: uint32(a.Tasks), Gres: text, Devices: list})
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

// cpusPerGPU reads CpusPerTres, "gres/gpu:4".
func cpusPerGPU(s *pb.JobSpec) int {
	list := admit.Gres(s.CpusPerTres)
	if len(list) == 0 {
		return 0
	}
	return int(list[0].Count)
}

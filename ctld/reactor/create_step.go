package reactor

import (
	"slices"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/conf/tres"
	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/ctld/steps"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// CreateStep gives srun a part of an allocation (srun(1)).
type CreateStep struct {
	Caller    Caller
	Job       uint32
	Spec      *pb.StepSpec
	RequestID string
	// Certificate and Key belong to the new step, made before the writer's turn: DER, and PKCS #8.
	Certificate, Key []byte
}

// CreatedStep is the reply to CreateStep: the step, or the reason why the request has to be repeated later.
type CreatedStep struct {
	Step *pb.StepRecord
	Job  *pb.JobRecord
	Busy *pb.Problem
	Seq  uint64
}

// Bounds of one job's steps. maxStepCount is the default of MaxStepCount.
const (
	maxStepCount = 40000
	maxLiveSteps = 5000
)

// Handle makes the step, or returns the one that the same request has already made.
func (c CreateStep) Handle(tx *state.Tx) any {
	j := tx.Job(c.Job)
	if p := c.refused(j); p != nil {
		return p
	}
	return c.in(tx, j)
}

// in makes the step in a running job.
func (c CreateStep) in(tx *state.Tx, j *pb.JobRecord) any {
	all := tx.Steps(j.Id)
	tx.Spend(len(all.All()) / 16)
	if all != nil && all.Attempt == j.Attempt && c.RequestID != "" {
		for _, s := range all.List {
			if s.RequestId == c.RequestID {
				return CreatedStep{Step: s, Job: j, Seq: tx.Seq}
			}
		}
	}
	if p := notYet(j); p != nil {
		return CreatedStep{Busy: p, Job: j, Seq: tx.Seq}
	}
	if all != nil && all.Attempt != j.Attempt {
		all = nil
	}
	id, p := c.number(tx, j, all)
	if p != nil {
		return p
	}
	live := all.Live()
	tx.Spend(len(live) + len(j.Alloc)/4)
	place, busy, never := steps.Place(j, live, c.Spec, tx.Settings().MaxTasksPerNode)
	switch {
	case never != nil:
		return never
	case busy != nil:
		return CreatedStep{Busy: busy, Job: j, Seq: tx.Seq}
	}
	s := c.record(tx, j, id, place)
	if p := bytesFor(tx, j.Spec.Uid, j.Spec.User, state.StepBytes(s), c.Caller.Operator); p != nil {
		return p
	}
	tx.Emit(state.StepCreated{Step: s})
	return CreatedStep{Step: s, Job: j, Seq: tx.Seq}
}

// refused returns the reason why the job can have no steps, or none of this caller.
func (c CreateStep) refused(j *pb.JobRecord) *pb.Problem {
	switch {
	case j == nil || c.Caller.Private && !c.Caller.mayTouch(j):
		return pb.NewProblem(pb.CodeInvalidJobID, "there is no job %d", c.Job)
	case !c.Caller.mayTouch(j):
		return c.Caller.Refused(pb.CodeAccessDenied, j)
	case !state.Active(j) || j.State.Terminal() || j.StopReason != "" || j.StateFlags&pb.JobCompleting != 0:
		return pb.NewProblem(pb.CodeAlreadyDone, "job %s is %s", state.JobName(j), state.StateName(j))
	case j.State == pb.JobState_JOB_PENDING:
		return pb.NewProblem(pb.CodeJobPending, "job %s is pending", state.JobName(j))
	}
	return nil
}

// notYet returns the reason why a job can have steps only later.
func notYet(j *pb.JobRecord) *pb.Problem {
	switch {
	case j.StateFlags&pb.JobConfiguring != 0:
		return pb.NewProblem(pb.CodePrologRunning, "job %s is being configured", state.JobName(j))
	case j.State == pb.JobState_JOB_SUSPENDED:
		return pb.NewProblem(pb.CodeSuspended, "job %s is suspended", state.JobName(j))
	}
	return nil
}

// leap is the gap in the numbers of the first steps after a restore of a backup: the job may have had steps that are not in the backup, and
// its nodes may still have them. Each restore leaves another gap, because the job may have had steps after the previous one.
func leap(tx *state.Tx, j *pb.JobRecord, all *state.JobSteps, copies bool) uint32 {
	v := tx.View()
	since := func(s *pb.StepRecord) bool { return pb.IsCopy(s.StepId) == copies && !v.FromBackup(s.MadeSeq) }
	if !v.FromBackup(j.Epoch) || all != nil && slices.ContainsFunc(all.List, since) {
		return 0
	}
	return 1000 * uint32(1+v.Restored>>20%16)
}

// number returns the number of the next step.
func (c CreateStep) number(tx *state.Tx, j *pb.JobRecord, all *state.JobSteps) (uint32, *pb.Problem) {
	if c.Spec.GetInteractive() {
		if s := all.Get(pb.InteractiveStep); s != nil {
			return 0, pb.NewProblem(pb.CodeDuplicateStep, "job %s has had its interactive step", state.JobName(j))
		}
		return pb.InteractiveStep, nil
	}
	if c.Spec.GetCopy() {
		return c.numberOfCopy(tx, j, all)
	}
	most := tx.Settings().MaxStepCount
	if most == 0 {
		most = maxStepCount
	}
	if all == nil {
		all = &state.JobSteps{}
	}
	next := all.Next + leap(tx, j, all, false)
	if next >= most {
		return 0, pb.NewProblem(pb.CodeStepLimit, "job %s has had %d steps (MaxStepCount)", state.JobName(j), most)
	}
	if all.Running >= maxLiveSteps {
		return 0, pb.NewProblem(pb.CodeStepLimit, "job %s has %d steps that run", state.JobName(j), all.Running)
	}
	return next, nil
}

// numberOfCopy returns the number of the next step that copies a file to its nodes.
func (c CreateStep) numberOfCopy(tx *state.Tx, j *pb.JobRecord, all *state.JobSteps) (uint32, *pb.Problem) {
	if all == nil {
		all = &state.JobSteps{}
	}
	next := max(pb.CopyStep, all.Copy) + leap(tx, j, all, true)
	switch {
	case all.Running >= maxLiveSteps:
		return 0, pb.NewProblem(pb.CodeStepLimit, "job %s has %d steps that run", state.JobName(j), all.Running)
	case !pb.IsCopy(next):
		return 0, pb.NewProblem(pb.CodeStepLimit, "job %s has had %d steps that copy files", state.JobName(j), all.Copy-pb.CopyStep)
	}
	return next, nil
}

// record makes the record of a placed step.
func (c CreateStep) record(tx *state.Tx, j *pb.JobRecord, id uint32, p *steps.Placement) *pb.StepRecord {
	s := &pb.StepRecord{JobId: j.Id, StepId: id, Attempt: j.Attempt, Epoch: j.Epoch, MadeSeq: tx.Seq, RequestId: c.RequestID, Spec: c.Spec,
		State: pb.JobState_JOB_RUNNING, Nodes: p.Nodes, NumTasks: p.Tasks, NumCpus: p.CPUs, StartNs: tx.NowNS, TimeLimitS: pb.Unlimited,
		Uid: j.Spec.Uid, Certificate: c.Certificate, Key: c.Key}
	if c.Spec.TimeLimitS != 0 && c.Spec.TimeLimitS != pb.Unlimited {
		s.TimeLimitS = c.Spec.TimeLimitS
		s.LimitNs = s.StartNs + int64(s.TimeLimitS)*1e9
	}
	names, mem := make([]string, len(p.Nodes)), uint64(0)
	var held []tres.Gres
	for i, n := range p.Nodes {
		names[i] = n.Node
		have := n.MemMib
		if have == 0 {
			have = state.AllocOn(j, n.Node).GetMemMib()
		}
		mem += have
		held = appendHeld(held, n.Devices)
	}
	slices.Sort(names)
	s.NodeList = hostlist.FoldSorted(names)
	s.AllocTres = admit.StepTRES(p.CPUs, mem, uint32(len(names))) + admit.GresTRES(tx.Settings(), held)
	return s
}

// appendHeld counts devices for TRES.
func appendHeld(held []tres.Gres, list []*pb.GresDevice) []tres.Gres {
	for _, d := range list {
		n := uint64(1)
		switch {
		case d.Count > 0:
			n = uint64(d.Count)
		case d.Share > 0:
			n = uint64(d.Share)
		}
		held = append(held, tres.Gres{Name: d.Name, Type: d.Type, Count: n})
	}
	return held
}

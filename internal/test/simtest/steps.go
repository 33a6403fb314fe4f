package simtest

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/ctld/steps"
	"github.com/sluice-hpc/sluice/noded/agent"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// srun creates steps of running jobs, and ends and signals some, periodically.
func (s *sim) srun() {
	if s.calm {
		return
	}
	s.after(s.between(0, s.meddling/2), s.srun)
	if s.ctl == nil {
		return
	}
	var running []*pb.JobRecord
	for j := range s.ctl.View().Jobs.All() {
		if j.State == pb.JobState_JOB_RUNNING && j.StopReason == "" && j.StateFlags&pb.JobConfiguring == 0 {
			running = append(running, j)
		}
	}
	if len(running) == 0 {
		return
	}
	j := running[s.rng.IntN(len(running))]
	if j.Spec.Interactive && s.chance(0.2) {
		status := uint32(s.rng.IntN(2)) << 8
		if _, again := s.witness.givenBack[j.Id]; !again {
			s.witness.givenBack[j.Id] = status
		}
		s.witness.stats.Seen["given back"]++
		s.ctl.send(reactor.EndAllocation{Caller: operator, Job: j.Id, Status: s.witness.givenBack[j.Id]}, nil)
		return
	}
	if live := s.ctl.View().Steps(j.Id).Live(); len(live) > 0 && s.chance(0.3) {
		c := reactor.Cancel{Caller: operator, IDs: []string{fmt.Sprint(j.Id, ".", live[s.rng.IntN(len(live))].StepId)}}
		if s.chance(0.3) {
			c.Signal = 10
		}
		s.ctl.send(c, nil)
		return
	}
	s.sruns++
	c := reactor.CreateStep{Caller: operator, Job: j.Id, Spec: s.anyStep(j), RequestID: strconv.Itoa(s.sruns)}
	for range 1 + s.rng.IntN(2) { // after a lost answer the same request is repeated
		s.ctl.send(c, nil)
	}
	if s.chance(0.3) { // and its job gets another time limit
		limit := &pb.KeyValue{Key: "TimeLimit", Value: strconv.Itoa(1 + s.rng.IntN(20))}
		s.order(reactor.UpdateJob{Caller: operator, IDs: []string{strconv.Itoa(int(j.Id))}, Set: []*pb.KeyValue{limit}})
	}
}

func (s *sim) anyStep(j *pb.JobRecord) *pb.StepSpec {
	spec := &pb.StepSpec{Name: "step", NumTasks: uint32(s.rng.IntN(3)), Exact: s.chance(0.6), Overlap: s.chance(0.2), NoKill: s.chance(0.3)}
	spec.Copy = s.chance(0.1)
	if s.chance(0.3) {
		spec.MinNodes = uint32(1 + s.rng.IntN(len(j.Alloc)))
	}
	if s.chance(0.2) {
		spec.TimeLimitS = uint32(1 + s.rng.IntN(60))
	}
	return spec
}

// stepScript returns what a step's tasks do on a node.
func (s *sim) stepScript() script {
	sc := s.anyScript()
	sc.run = s.between(0, time.Minute)
	if s.chance(0.2) { // until the end of its allocation
		sc.run = s.between(0, 20*time.Minute)
	}
	return sc
}

// isExcused reports whether the step was given up with its node, by itself or with its allocation.
func (w *witness) isExcused(at stepAt) bool {
	if w.excused[at] || at.Holder() {
		return w.excused[at]
	}
	batch, extern := at, at
	batch.Step, extern.Step = pb.BatchStep, pb.ExternStep
	return w.excused[batch] || w.excused[extern]
}

// startedStep checks a step that starts: it is within its allocation, and not on another step's CPUs.
func (w *witness) startedStep(st *step, l *pb.LaunchSpec) {
	w.stats.Seen["step"]++
	held := false
	for _, s := range []uint32{pb.BatchStep, pb.ExternStep} {
		h := st.at
		h.Step = s
		held = held || w.steps[h] != nil
	}
	if !held {
		w.s.fail("%s starts on %s before its allocation", keyWords(st.at.Key), st.at.node)
	}
	if len(l.Script) > 0 || len(l.Env) > 0 {
		w.s.fail("%s was launched with a script", keyWords(st.at.Key))
	}
	for _, n := range l.Step.Nodes {
		if n.Node == st.at.node {
			st.cpus, _ = state.ParseCores(n.CpuIds)
		}
	}
	if st.overlaps = steps.Overlaps(l.Step.Spec); st.overlaps {
		return
	}
	for _, o := range w.steps {
		if o != st && o.live && !o.at.Holder() && !o.overlaps && !w.excused[o.at] && o.at.attempt() == st.at.attempt() &&
			o.at.node == st.at.node && o.cpus.Overlaps(st.cpus) {
			w.s.fail("%s starts on CPUs of %s of %s", keyWords(st.at.Key), keyWords(o.at.Key), st.at.node)
		}
	}
}

// heldToTheEnd reports whether a placeholder on a node of a job ended by itself, which it does at the time limit.
func (w *witness) heldToTheEnd(j *pb.JobRecord) bool {
	return slices.ContainsFunc(nodesOf(j), func(node string) bool {
		st := w.steps[stepOf(j, node)]
		return st != nil && st.at.Step == pb.ExternStep && st.rec.GetVerdict() == "exited" && !st.rec.StoppedOnOrder
	})
}

// firstStep checks that a starting job has its first step in the same commit, and later no other one for the same request.
func (w *witness) firstStep(old, now *pb.JobRecord, v *state.View) {
	if old.FirstStep == nil || now.State != pb.JobState_JOB_RUNNING || now.StateFlags&pb.JobConfiguring != 0 {
		return
	}
	w.stats.Seen["first step"]++
	if s := v.Steps(now.Id).Get(0); s == nil || s.Attempt != now.Attempt || s.RequestId != old.FirstStep.RequestId {
		w.s.fail("%s has started without its first step: %v", jobWords(now), s)
	}
	if now.FirstStep != nil {
		w.s.fail("%s has started and is to have a first step still", jobWords(now))
	}
}

// freedSteps checks that no step of a job is left where its share is free.
func (w *witness) freedSteps(at stepAt, down bool) {
	for o, st := range w.steps {
		if st.live && !o.Holder() && o.node == at.node && o.attempt() == at.attempt() && !down {
			w.s.fail("the share of %s on %s is free, but %s is alive", keyWords(at.Key), at.node, keyWords(o.Key))
		}
	}
}

// stepped compares the steps of a job with their previous state.
func (w *witness) stepped(id uint32, v *state.View) {
	old, now := w.jobSteps[id], v.Steps(id)
	w.jobSteps[id] = now
	if now == nil {
		delete(w.jobSteps, id)
		return
	}
	for _, s := range now.List {
		var was *pb.StepRecord
		if old != nil && old.Attempt == now.Attempt {
			was = old.Get(s.StepId)
		}
		if was == s {
			continue
		}
		w.note("step %d.%d.%d %s %s", s.JobId, s.Attempt, s.StepId, s.State, s.StopReason)
		if was != nil && !state.StepLive(was) && !proto.Equal(was, s) {
			w.s.fail("a step that had ended changed: %v was %v", s, was)
		}
		for _, n := range s.Nodes {
			if n.Ended && (was == nil || state.StepOn(was, n.Node) != nil) {
				w.freedStep(stepAt{agent.Key{Job: id, Attempt: s.Attempt, Epoch: s.Epoch, Step: s.StepId}, n.Node}, v.Node(n.Node))
			}
		}
		if !state.StepLive(s) && (was == nil || state.StepLive(was)) {
			w.stepEnded(s)
		}
	}
}

func (w *witness) freedStep(at stepAt, n *state.Node) {
	w.freedAt[at] = true
	down := n.State == pb.NodeState_NODE_DOWN || w.outage[at.node] >= nodeTimeout*1e9 || w.downing[at.node] > 0
	if st := w.steps[at]; st != nil && st.live && !down && !w.isExcused(at) {
		w.s.fail("the share of %s on %s is free, but it is alive", keyWords(at.Key), at.node)
	}
}

// stepEnded checks the terminal record of a step against the facts.
func (w *witness) stepEnded(s *pb.StepRecord) {
	key := state.KeyOf(s)
	if w.stepEnds[key] {
		w.s.fail("step %v has a second terminal record: %v", key, s)
	}
	w.stepEnds[key] = true
	w.stats.Seen["step "+s.State.String()]++
	good := true
	for _, n := range s.Nodes {
		st := w.steps[stepAt{agent.Key{Job: s.JobId, Attempt: s.Attempt, Epoch: s.Epoch, Step: s.StepId}, n.Node}]
		good = good && st != nil && st.rec != nil && st.rec.Verdict == "exited" && st.rec.WaitStatus == 0
	}
	if s.State == pb.JobState_JOB_COMPLETED && !good {
		w.s.fail("step %v is COMPLETED, but it did not end well everywhere", key)
	}
	if s.State == pb.JobState_JOB_CANCELLED && s.StopReason == "" && good && w.harmed[attempt{s.JobId, s.Attempt, s.Epoch}] == "" {
		w.s.fail("step %v is CANCELLED, but it ended well and nobody had it ended", key)
	}
}

// loadedSteps compares the steps that a new controller has loaded with the last ones published.
func (w *witness) loadedSteps(v *state.View, unseen bool) {
	ids := map[uint32]bool{}
	for id := range w.jobSteps {
		ids[id] = true
	}
	for all := range v.AllSteps() {
		ids[all.List[0].JobId] = true
	}
	for _, id := range sortedIDs(ids) {
		if unseen {
			w.stepped(id, v)
			continue
		}
		old, now := w.jobSteps[id], v.Steps(id)
		if !slices.EqualFunc(old.All(), now.All(), w.sameStep) || old.Attempt != now.Attempt || old.Next != now.Next {
			w.s.fail("the steps of job %d are not what they were before the crash:\n was %v\n now %v", id, old, now)
		}
		w.jobSteps[id] = now
	}
}

// sameStep compares two records, except times that move with clocks.
func (w *witness) sameStep(a, b *pb.StepRecord) bool {
	if w.s.clocks.set && state.StepLive(a) {
		a, b = state.CloneStep(a), state.CloneStep(b)
		a.StartNs, a.LimitNs, b.StartNs, b.LimitNs = 0, 0, 0, 0
	}
	return proto.Equal(a, b)
}

func sortedIDs(set map[uint32]bool) []uint32 {
	ids := make([]uint32, 0, len(set))
	for id := range set {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

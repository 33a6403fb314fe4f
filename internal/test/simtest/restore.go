package simtest

import (
	"maps"
	"slices"
	"time"

	"github.com/sluice-hpc/sluice/ctld/journal"
	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/noded/agent"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// restoredWhy is the allowed end of attempts from before a restore.
const restoredWhy = "a backup was restored"

// backUp makes backups periodically.
func (s *sim) backUp() {
	if s.calm {
		return
	}
	s.logf("-- a backup is made")
	s.backup, s.backedUp = s.disk.Copy(), maps.Clone(s.witness.givenUp)
	s.after(s.between(10*time.Second, 5*time.Minute), s.backUp)
}

// restore replaces the state by the last backup, on the same host or on another one, which knows nothing of what was handed out
// since. Users whose jobs are gone submit them again.
func (s *sim) restore() {
	if s.calm || s.backup == nil {
		return
	}
	samePlace := s.chance(0.5)
	s.logf("-- the backup is restored, in the same place: %v", samePlace)
	if s.ctl != nil {
		s.ctl.crash("restore")
	}
	s.disk.Restore(s.backup, samePlace)
	s.unseen = false
	w := newWitness(s)
	old := s.witness
	w.fresh, w.stats, w.hash = true, old.stats, old.hash
	w.steps, w.cancelled, w.givenBack = old.steps, old.cancelled, old.givenBack
	w.starts, w.boots, w.paused = old.starts, old.boots, old.paused
	if samePlace {
		w.highest = old.highest
	}
	w.givenUp = maps.Clone(s.backedUp)
	w.stats.Seen["restore"]++
	s.witness = w
	s.after(s.between(0, s.o.Chaos), s.restore)
}

// restored adopts the first state after a restore. Running steps that it lacks are lost, and must be ended; steps that it has may
// never have run.
func (w *witness) restored(v *state.View) {
	w.fresh, w.view, w.startedNS = false, v, w.s.now
	w.highest = max(w.highest, v.NextJobID-1)
	for j := range v.Jobs.All() {
		w.jobs[j.Id] = j
		w.submitted[j.Spec.Comment] = j.Id
		w.harmed[attemptOf(j)] = restoredWhy
		w.began[j.Id] = true
		if state.Pending(j) {
			w.waited[j.Id] = j
		}
	}
	for all := range v.AllSteps() {
		w.jobSteps[all.List[0].JobId] = all
	}
	for at := range maps.Keys(w.steps) {
		lost := !at.Holder() && v.Steps(at.Job).Get(at.Step) == nil
		if j := v.Jobs.Get(at.Job); lost || j == nil || attemptOf(j) != at.attempt() || !state.Live(j) {
			w.excused[at] = true
			if w.steps[at].live {
				w.stats.Seen["lost attempt"]++
			}
			w.harmed[at.attempt()] = restoredWhy
		} else {
			delete(w.excused, at)
		}
	}
	for _, sub := range w.s.subs {
		if j := v.Jobs.Get(w.submitted[sub.spec.Comment]); sub.id != 0 && j != nil && j.Id == sub.id {
			w.acks[sub.id] = sub
			continue
		}
		if sub.id != 0 {
			w.stats.Seen["lost job"]++
			sub.id = 0
			w.s.after(w.s.between(0, time.Minute), func() { w.s.submit(sub) })
		}
	}
	for _, n := range v.Nodes() {
		w.heard[n.Name] = n.ToldSeq
		w.link(n, w.s.now)
		w.wake(n, 0)
	}
	if err := v.Check(); err != nil {
		w.s.fail("the restored state is not sound: %w", err)
	}
}

// takenBack reports whether a restore has undone a commit.
func (w *witness) takenBack(seq uint64) bool {
	_, lost := w.s.disk.Generation()
	return slices.ContainsFunc(lost, func(s journal.Span) bool { return s.After < seq && seq <= s.UpTo })
}

// startedLost excuses a step whose launch was under way when its attempt was lost in a restore.
func (w *witness) startedLost(at stepAt) {
	_, lost := w.s.disk.Generation()
	if len(lost) == 0 {
		return
	}
	if j := w.jobs[at.Job]; at.Epoch <= lost[len(lost)-1].UpTo && (j == nil || attemptOf(j) != at.attempt()) {
		w.excused[at], w.harmed[at.attempt()] = true, restoredWhy
	}
}

// missed reports whether a step began after everything that the backup knew of its job, in a time that was undone.
func (w *witness) missed(at stepAt) bool {
	j := w.waited[at.Job]
	return j != nil && at.Epoch > max(j.MadeSeq, j.Epoch) && w.takenBack(at.Epoch)
}

// settled reports whether, for such a step, the backup had its node's answer and nothing was left to do.
func (w *witness) settled(at stepAt) bool {
	return at.Epoch <= w.heard[at.node] && at.Epoch != w.waited[at.Job].Lost.GetKey().GetEpoch()
}

// cameTo returns how the script of a job that waited in the backup ended in the undone time, as its node knows; nil: no end is
// known, or the job may be started again because somebody has said so.
func (w *witness) cameTo(id uint32) *pb.ExitRecord {
	if len(w.outcomes[id]) > 0 {
		return nil
	}
	var last *step
	for at, st := range w.steps {
		if at.Job == id && at.Holder() && w.missed(at) &&
			(last == nil || at.Epoch > last.at.Epoch || at.Epoch == last.at.Epoch && at.Step == pb.BatchStep) {
			last = st
		}
	}
	if last == nil || last.rec == nil || last.at.Epoch < w.givenUp[last.at.node] || w.settled(last.at) || last.at.Step != pb.BatchStep {
		return nil
	}
	if !last.wiped && endedItself(last.rec) {
		return last.rec
	}
	return nil
}

func endedItself(x *pb.ExitRecord) bool {
	switch x.Verdict {
	case "exited", "signaled", "timeout", "oom", "output_failed":
		return !x.StoppedOnOrder
	}
	return false
}

// knows checks a node's answer about an attempt that it no longer has. If the script has ended there, it must not be started
// again.
func (w *witness) knows(at stepAt, x *pb.ExitRecord) {
	if st := w.steps[at]; x.Verdict == "unknown" && st != nil && st.rec != nil && !st.wiped && endedItself(st.rec) {
		w.s.fail("%s says that it knows nothing of %s, which has ended there: %s", at.node, keyWords(at.Key), exitWords(st.rec))
	}
}

// recalled checks what accounting learns about jobs that a restored state does not know: it must have happened on the node, and a
// node that has reported its history has reported everything that it remembers.
func (w *witness) recalled(c state.Change) {
	for _, e := range c.Events {
		switch e := e.(type) {
		case state.AttemptLost:
			w.judged(e)
		case state.NodeChanged:
			if e.What != state.WhatTold {
				continue
			}
			i := slices.IndexFunc(w.s.nodes, func(m *machine) bool { return m.name == e.Node.Name })
			m := w.s.nodes[i]
			for _, k := range sortedKeys(m.past) {
				if k.Holder() && m.of[k] != nil && w.lastTakenBack(k.Epoch) && c.View.Jobs.Get(k.Job) == nil &&
					!w.told[stepAt{k, m.name}] {
					w.s.fail("%s has told what it ran before the restore, and accounting has not heard of %s", m.name, keyWords(k))
				}
			}
		}
	}
}

// lastTakenBack reports whether the last restore has undone a commit.
func (w *witness) lastTakenBack(seq uint64) bool {
	_, lost := w.s.disk.Generation()
	return len(lost) > 0 && lost[len(lost)-1].After < seq && seq <= lost[len(lost)-1].UpTo
}

// judged compares what accounting learns about an attempt with what happened on the node.
func (w *witness) judged(e state.AttemptLost) {
	l, j := e.Job.Lost, e.Job
	at := stepAt{agent.KeyOf(l.Key), e.Node}
	w.told[at] = true
	w.stats.Seen["recalled"]++
	if !w.takenBack(at.Epoch) || j.Id != at.Job {
		w.s.fail("%s is not an attempt that was lost", keyWords(at.Key))
	}
	st := w.steps[at]
	if st == nil || st.rec == nil || at.Step != pb.BatchStep || l.Verdict == "" || !endedItself(st.rec) {
		return
	}
	want := map[string]pb.JobState{"exited": pb.JobState_JOB_COMPLETED, "signaled": pb.JobState_JOB_FAILED,
		"oom": pb.JobState_JOB_OUT_OF_MEMORY, "timeout": pb.JobState_JOB_TIMEOUT, "output_failed": pb.JobState_JOB_FAILED}[st.rec.Verdict]
	if st.rec.Verdict == "exited" && st.rec.WaitStatus != 0 {
		want = pb.JobState_JOB_FAILED
	}
	if j.State != want || want == pb.JobState_JOB_FAILED && j.ExitStatus == 0 || j.EndNs == 0 {
		w.s.fail("accounting is told that %s of a lost job is %s, its script has ended: %s", keyWords(at.Key), jobWords(j),
			exitWords(st.rec))
	}
}

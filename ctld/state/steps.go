package state

import (
	"encoding/binary"
	"fmt"
	"iter"
	"slices"

	"github.com/sluice-hpc/sluice/ctld/journal"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// Steps are the parts of an allocation that srun gets. Each has a row of its own, written before any of its nodes hears of it. The table
// has the steps of a job's last attempt: all running ones, and the last KeptSteps that have ended. A step leaves the table when there are
// more, when its job is forgotten or when the next attempt starts; its row stays until accounting has it (StepsStored). So the rows that
// the table lacks are the outbox of steps. Rejected: steps inside the record of their job, which each step would write whole.

// KeptSteps is the least number of a job's ended steps that stay in the state.
const KeptSteps = 1000

// keptCopies is KeptSteps for steps that copy files, of which only the numbers are needed later.
const keptCopies = 8

// StepKey identifies a step for good: a requeued job counts its steps from 0 again.
type StepKey struct{ Job, Attempt, Step uint32 }

// KeyOf returns the key of a step.
func KeyOf(s *pb.StepRecord) StepKey { return StepKey{s.JobId, s.Attempt, s.StepId} }

// Bytes encodes the key for the journal's bucket Steps.
func (k StepKey) Bytes() []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 12), k.Job)
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, k.Attempt), k.Step)
}

func stepKeyOf(key []byte) (k StepKey, ok bool) {
	if len(key) != 12 {
		return k, false
	}
	return StepKey{binary.BigEndian.Uint32(key), binary.BigEndian.Uint32(key[4:]), binary.BigEndian.Uint32(key[8:])}, true
}

// JobSteps are the steps of one attempt of a job. Immutable.
type JobSteps struct {
	Attempt uint32
	List    []*pb.StepRecord // by id, ascending
	Next    uint32           // number of the next step
	Copy    uint32           // number of the next step that copies files; 0: there has been none
	Running int              // steps of List that have not ended

	bytes int64 // size of all steps
	uid   uint32
}

// Get returns a step, or nil.
func (s *JobSteps) Get(id uint32) *pb.StepRecord {
	if s == nil {
		return nil
	}
	if i, ok := s.find(id); ok {
		return s.List[i]
	}
	return nil
}

// All returns the steps by id; nil has none.
func (s *JobSteps) All() []*pb.StepRecord {
	if s == nil {
		return nil
	}
	return s.List
}

// Live returns the steps that have not ended.
func (s *JobSteps) Live() []*pb.StepRecord {
	if s == nil || s.Running == 0 {
		return nil
	}
	list := make([]*pb.StepRecord, 0, s.Running)
	for _, r := range s.List {
		if StepLive(r) {
			list = append(list, r)
		}
	}
	return list
}

func (s *JobSteps) find(id uint32) (int, bool) {
	return slices.BinarySearchFunc(s.List, id, func(r *pb.StepRecord, id uint32) int { return int(int64(r.StepId) - int64(id)) })
}

// copies returns the steps that copy files to nodes.
func (s *JobSteps) copies() []*pb.StepRecord {
	if s.Copy == 0 {
		return nil
	}
	i, _ := s.find(pb.CopyStep)
	j, _ := s.find(pb.InteractiveStep)
	return s.List[i:j]
}

// StepLive reports whether something of a step may be left on some node.
func StepLive(s *pb.StepRecord) bool {
	return !s.State.Terminal() || s.StateFlags&pb.JobCompleting != 0
}

// StepOn returns a step's unfinished part on a node, or nil.
func StepOn(s *pb.StepRecord, node string) *pb.StepNode {
	for _, n := range s.GetNodes() {
		if n.Node == node && !n.Ended {
			return n
		}
	}
	return nil
}

// CloneStep copies the record of a step; the values that it points to are shared.
func CloneStep(s *pb.StepRecord) *pb.StepRecord { return pb.ShallowCopy(s) }

// Numbered reports whether a step has a record of its own. The allocation itself (batch or extern step) has none.
func Numbered(step uint32) bool { return step != pb.BatchStep && step != pb.ExternStep }

// Steps returns the steps of a job's last attempt, nil when it has had none.
func (v *View) Steps(job uint32) *JobSteps { return v.steps.Get(job) }

// AllSteps yields the steps of all jobs, by job.
func (v *View) AllSteps() iter.Seq[*JobSteps] { return v.steps.All() }

// Steps returns the steps of a job's last attempt, nil when it has had none.
func (tx *Tx) Steps(job uint32) *JobSteps { return tx.next.steps.Get(job) }

// StepBytes returns the part of a user's bytes that a step takes.
func StepBytes(s *pb.StepRecord) int64 {
	const perTask = 4 // its rank
	return stepBytes + int64(proto.Size(s.GetSpec())) + perTask*int64(s.GetNumTasks())
}

const stepBytes = 512

// putStep stores a record; durable: its row must be written.
func (tx *Tx) putStep(s *pb.StepRecord, durable bool) {
	old := tx.Steps(s.JobId)
	next := &JobSteps{Attempt: s.Attempt, uid: s.Uid}
	if old != nil {
		*next = *old
	}
	i, had := next.find(s.StepId)
	if had {
		next.List = slices.Clone(next.List)
		if StepLive(next.List[i]) {
			next.Running--
		}
		next.bytes -= StepBytes(next.List[i])
		next.List[i] = s
	} else {
		list := make([]*pb.StepRecord, 0, len(next.List)+1)
		next.List = append(append(append(list, next.List[:i]...), s), next.List[i:]...)
	}
	next.bytes += StepBytes(s)
	if StepLive(s) {
		next.Running++
		for _, n := range s.Nodes {
			if !n.Ended {
				tx.wakeNode(n.Node)
			}
		}
	}
	switch {
	case pb.IsCopy(s.StepId):
		next.Copy = max(next.Copy, s.StepId+1)
	case s.StepId < pb.InteractiveStep:
		next.Next = max(next.Next, s.StepId+1)
	}
	tx.setSteps(s.JobId, next)
	if durable {
		tx.stepRow(KeyOf(s), s)
	}
}

func (tx *Tx) setSteps(job uint32, s *JobSteps) {
	if tx.next.steps == tx.base.steps {
		tx.next.steps = tx.base.steps.clone()
	}
	w := tx.next.writer
	if old := tx.Steps(job); old != nil {
		w.bytes.add(old.uid, -old.bytes)
	}
	if s != nil {
		w.bytes.add(s.uid, s.bytes)
	}
	tx.next.steps.put(tx, job, s)
	if tx.stepped == nil {
		tx.stepped = map[uint32]bool{}
	}
	tx.stepped[job] = true
}

// stepRow notes a row to write; nil: to delete.
func (tx *Tx) stepRow(k StepKey, s *pb.StepRecord) {
	if tx.stepRows == nil {
		tx.stepRows = map[StepKey]*pb.StepRecord{}
	}
	tx.stepRows[k] = s
}

// dropSteps removes all steps of a job from the table.
func (tx *Tx) dropSteps(job uint32) {
	old := tx.Steps(job)
	if old == nil {
		return
	}
	for _, s := range old.List {
		tx.stepsKept = append(tx.stepsKept, KeyOf(s))
	}
	tx.setSteps(job, nil)
}

// trimSteps removes the oldest ended steps of a job from the table when it has many more than KeptSteps.
func (tx *Tx) trimSteps(job uint32) {
	old := tx.Steps(job)
	ended, copies := 0, 0
	for _, s := range old.copies() {
		if !StepLive(s) {
			copies++
		}
	}
	if ended = len(old.List) - old.Running - copies; ended < KeptSteps+KeptSteps/4 && copies <= keptCopies {
		return
	}
	next := *old
	next.List = make([]*pb.StepRecord, 0, len(old.List))
	for _, s := range old.List {
		left, most := &ended, KeptSteps
		if pb.IsCopy(s.StepId) {
			left, most = &copies, keptCopies
		}
		if *left > most && !StepLive(s) && s.StepId < pb.InteractiveStep {
			*left--
			next.bytes -= StepBytes(s)
			if pb.IsCopy(s.StepId) { // accounting does not store copies
				tx.stepRow(KeyOf(s), nil)
				continue
			}
			tx.stepsKept = append(tx.stepsKept, KeyOf(s))
			continue
		}
		next.List = append(next.List, s)
	}
	tx.setSteps(job, &next)
}

// StepCreated: a part of an allocation was given to srun.
type StepCreated struct{ Step *pb.StepRecord }

func (e StepCreated) apply(tx *Tx) { tx.putStep(e.Step, true) }

// Attrs implements Event.
func (e StepCreated) Attrs() []any {
	return []any{"job", e.Step.JobId, "step", e.Step.StepId, "nodes", e.Step.NodeList, "tasks", e.Step.NumTasks, "cpus", e.Step.NumCpus}
}

// StepChanged: something about a running step changed (told to stop, signalled, updated, gone from a node). What is a word for it.
type StepChanged struct {
	Step *pb.StepRecord
	What string
}

func (e StepChanged) apply(tx *Tx) {
	old := tx.Steps(e.Step.JobId).Get(e.Step.StepId)
	if old != nil {
		for _, n := range e.Step.Nodes {
			tx.must = tx.must || n.Ended && StepOn(old, n.Node) != nil
		}
		tx.must = tx.must || old.StopReason != e.Step.StopReason
		tx.wakeStep(old)
	}
	tx.putStep(e.Step, true)
}

// Attrs implements Event.
func (e StepChanged) Attrs() []any {
	return []any{"job", e.Step.JobId, "step", e.Step.StepId, "what", e.What}
}

// StepEnded: nothing of a step is left on any node.
type StepEnded struct{ Step *pb.StepRecord }

func (e StepEnded) apply(tx *Tx) {
	tx.must = true
	if old := tx.Steps(e.Step.JobId).Get(e.Step.StepId); old != nil {
		tx.wakeStep(old)
	}
	tx.putStep(e.Step, true)
	tx.trimSteps(e.Step.JobId)
}

// Attrs implements Event.
func (e StepEnded) Attrs() []any {
	return []any{"job", e.Step.JobId, "step", e.Step.StepId, "state", e.Step.State.String(), "exit_status", e.Step.ExitStatus}
}

// wakeStep has the dispatcher look at the nodes of a step, including those that it has just left: they should forget it.
func (tx *Tx) wakeStep(s *pb.StepRecord) {
	for _, n := range s.Nodes {
		if !n.Ended {
			tx.wakeNode(n.Node)
		}
	}
}

// StepsStored: accounting has these steps, which are no longer in the table. It is written on a full disk too, where it makes room.
type StepsStored struct{ Steps []StepKey }

func (e StepsStored) apply(tx *Tx) {
	tx.must = true
	for _, k := range e.Steps {
		if s := tx.Steps(k.Job); s == nil || s.Attempt != k.Attempt || s.Get(k.Step) == nil {
			tx.stepRow(k, nil)
		}
	}
}

// Attrs is nil: not worth a log line.
func (e StepsStored) Attrs() []any { return nil }

// rowsOfSteps adds the changed rows of steps. Like rows of jobs, they record the clock by which they were written.
func (tx *Tx) rowsOfSteps(rows []journal.Row) ([]journal.Row, error) {
	if len(tx.stepRows) == 0 {
		return rows, nil
	}
	var stamp []byte
	if c := tx.next.clock; c != nil {
		b, err := proto.Marshal(&pb.StepRecord{ClockNs: c.OffsetNs, ClockBoot: bootHash(c.BootId)})
		if err != nil {
			return nil, fmt.Errorf("cannot encode the clock of a step: %w: %w", err, journal.ErrBatch)
		}
		stamp = b
	}
	for k, s := range tx.stepRows {
		row := journal.Row{Bucket: journal.Steps, Key: k.Bytes()}
		if s != nil {
			v, err := proto.MarshalOptions{}.MarshalAppend(slices.Clip(stamp), s)
			if err != nil {
				return nil, fmt.Errorf("cannot encode a row of %v: %w: %w", journal.Steps, err, journal.ErrBatch)
			}
			row.Value = v
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// loadStep adds a row; jobs have been loaded before.
func (tx *Tx) loadStep(key, value []byte) error {
	k, ok := stepKeyOf(key)
	if !ok {
		return nil
	}
	if j := tx.Job(k.Job); j == nil || j.Attempt != k.Attempt {
		tx.next.StepOutbox = append(tx.next.StepOutbox, k)
		return nil
	}
	s := &pb.StepRecord{}
	if err := proto.Unmarshal(value, s); err != nil {
		return fmt.Errorf("cannot decode step %d of job %d: %w", k.Step, k.Job, err)
	}
	wrote, boot := s.ClockNs, s.ClockBoot
	s.ClockNs, s.ClockBoot = 0, 0
	if c := tx.next.clock; c != nil && (boot != bootHash(c.BootId) || wrote != c.OffsetNs) {
		old := &pb.ClockRecord{}
		if boot == bootHash(c.BootId) {
			old.BootId, old.OffsetNs = c.BootId, wrote
		}
		s = tx.between(old, c).step(s)
	}
	tx.putStep(s, false)
	return nil
}

// step returns a record with its times moved, or the same record when none moved.
func (c setting) step(s *pb.StepRecord) *pb.StepRecord {
	if !StepLive(s) {
		return s
	}
	n := CloneStep(s)
	started := n.StartNs
	if !c.past(&n.StartNs) {
		return s
	}
	if n.LimitNs != 0 {
		n.LimitNs += n.StartNs - started
	}
	c.past(&n.EndNs)
	return n
}

// moveSteps moves the times of running steps when the clock has been set.
func (tx *Tx) moveSteps(c setting) {
	var moved []*pb.StepRecord
	for js := range tx.next.steps.All() {
		for _, s := range js.Live() {
			if n := c.step(s); n != s {
				moved = append(moved, n)
			}
		}
	}
	for _, s := range moved {
		tx.putStep(s, false)
	}
}

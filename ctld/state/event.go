package state

import (
	"strings"

	"github.com/sluice-hpc/sluice/conf/jobid"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Event is a fact, and the only way the state changes. Applying one cannot fail, because its emitter has checked that it is possible (tests
// prove it with Check).
type Event interface {
	apply(*Tx)
	// Attrs returns the log line's attributes: alternating keys and values.
	Attrs() []any
}

// JobSubmitted: a job was accepted. Its record names the texts (Texts.Name).
type JobSubmitted struct {
	Job   *pb.JobRecord
	Texts Texts
}

func (e JobSubmitted) apply(tx *Tx) {
	tx.next.NextJobID = max(tx.next.NextJobID, e.Job.Id+1)
	tx.putTexts(e.Texts)
	tx.putJob(e.Job, true)
	tx.rememberRequest(e.Job.RequestId, e.Job.Id)
}
func (e JobSubmitted) Attrs() []any { return []any{"job", e.Job.Id, "uid", e.Job.Spec.Uid} }

// JobStarted: an attempt begins. Job is the record with the allocation in it.
type JobStarted struct{ Job *pb.JobRecord }

func (e JobStarted) apply(tx *Tx) {
	tx.dropSteps(e.Job.Id) // of the previous attempt
	tx.putJob(e.Job, true)
	for _, a := range e.Job.Alloc {
		tx.occupy(e.Job, a)
	}
}
func (e JobStarted) Attrs() []any {
	return jobAttrs(e.Job)
}

// AttemptFound: a restore has lost the last attempt of a pending job, and its nodes have reported what they know of it. Job is the record
// in that attempt, of which nothing is left; an event with the outcome follows.
type AttemptFound struct{ Job *pb.JobRecord }

func (e AttemptFound) apply(tx *Tx) {
	tx.dropSteps(e.Job.Id) // of the previous attempt
	tx.putJob(e.Job, true)
}
func (e AttemptFound) Attrs() []any {
	return []any{"job", e.Job.Id, "attempt", e.Job.Attempt, "node", e.Job.BatchHost, "ended", e.Job.BatchVerdict}
}

// ArraySplit: some tasks of a record that stands for several got a record of their own (they start, or were addressed alone). Rest is the
// old record without them.
type ArraySplit struct{ Rest, Part *pb.JobRecord }

func (e ArraySplit) apply(tx *Tx) {
	tx.next.NextJobID = max(tx.next.NextJobID, e.Part.Id+1)
	tx.putJob(e.Rest, true)
	tx.putJob(e.Part, true)
}
func (e ArraySplit) Attrs() []any { return nil }

// TasksDropped: some tasks of a record that stands for several were cancelled. Job is the record without them. Like the end of a job, it is
// written on a full disk too.
type TasksDropped struct {
	Job   *pb.JobRecord
	Tasks jobid.Set
	By    uint32
}

func (e TasksDropped) apply(tx *Tx) {
	tx.must = true
	tx.putJob(e.Job, true)
}
func (e TasksDropped) Attrs() []any {
	return []any{"job", e.Job.ArrayJobId, "tasks", e.Tasks.String(), "uid", e.By}
}

// JobChanged: something else about a job changed (held, released, updated, told to stop, signalled). What is a word for it.
//
// The order to stop is written on a full disk too: the end of the job makes room.
type JobChanged struct {
	Job  *pb.JobRecord
	What string
}

func (e JobChanged) apply(tx *Tx) {
	if e.Job.StopReason != "" {
		old := tx.Job(e.Job.Id)
		tx.must = tx.must || old == nil || old.StopReason != e.Job.StopReason
	}
	tx.putJob(e.Job, true)
}
func (e JobChanged) Attrs() []any { return []any{"job", e.Job.Id, "what", e.What} }

// JobShown: fields of a pending job that are only displayed changed (reason, expected start). Not durable.
type JobShown struct{ Job *pb.JobRecord }

func (e JobShown) apply(tx *Tx) { tx.putJob(e.Job, false) }
func (e JobShown) Attrs() []any { return nil }

// JobLeftNode: nothing of the job is left on a node; its share is free again. Job is the record with that allocation marked.
type JobLeftNode struct {
	Job  *pb.JobRecord
	Node string
}

func (e JobLeftNode) apply(tx *Tx) {
	tx.must = true
	tx.putJob(e.Job, true)
	tx.vacate(e.Job, e.Node)
}
func (e JobLeftNode) Attrs() []any { return []any{"job", e.Job.Id, "node", e.Node} }

// JobEnded: the attempt has its terminal record.
type JobEnded struct{ Job *pb.JobRecord }

func (e JobEnded) apply(tx *Tx) {
	tx.must = true
	tx.putJob(e.Job, true)
}
func (e JobEnded) Attrs() []any {
	return endAttrs(e.Job)
}

// JobRequeued: the job is pending again. Ended is the attempt that this ends; nil when it had ended before.
type JobRequeued struct {
	Job   *pb.JobRecord
	Why   string
	Ended *pb.JobRecord
}

func (e JobRequeued) apply(tx *Tx) {
	tx.must = true
	if old := tx.Job(e.Job.Id); old != nil && old.Restarts != e.Job.Restarts {
		tx.putOutbox(EndedAttempt(old, e.Why, tx.NowNS))
	}
	tx.putJob(e.Job, true)
}
func (e JobRequeued) Attrs() []any {
	return []any{"job", e.Job.Id, "user", e.Job.Spec.User, "restarts", e.Job.Restarts, "why", e.Why}
}

// JobForgotten: a finished job is older than MinJobAge. It is written on a full disk too, where it makes room. Keep: accounting has not
// stored the job yet, so it goes into the outbox.
type JobForgotten struct {
	ID   uint32
	Keep bool
}

func (e JobForgotten) apply(tx *Tx) {
	j := tx.Job(e.ID)
	if j == nil {
		return
	}
	tx.must = true
	if e.Keep || tx.dirty[e.ID] {
		tx.putOutbox(j)
	}
	tx.retireRequest(j)
	tx.dropSteps(e.ID)
	tx.deleteJob(e.ID)
}
func (e JobForgotten) Attrs() []any { return []any{"job", e.ID} }

// Values of JobChanged.What for a job that leaves its GPUs idle; the second one causes a mail.
const (
	WhatIdle   = "GPUs idle"
	WhatWarned = "GPUs idle, user warned"
)

// WhatLost is for a node that has attempts which a restored state does not know.
const WhatLost = "has attempts that the restored state does not contain"

// WhatTold is for a node that has reported everything that it ran.
const WhatTold = "told what it ran before the restore"

// WhatForgot is for a node that ran more after a restored backup was made than it remembers.
const WhatForgot = "has no complete record of what it ran before the restore: the jobs from before wait for an administrator"

// NodeChanged: a node's record changed. Durable when it must survive a restart (drain, reason, state), not for heartbeats. A durable one is
// written on a full disk too: a node that could not register could not report the end of its jobs either.
type NodeChanged struct {
	Node    *Node
	What    string
	Durable bool
	Lost    []string // attempts that a restore of a backup has lost, as JOB.ATTEMPT
}

func (e NodeChanged) apply(tx *Tx) {
	tx.must = tx.must || e.Durable
	tx.putNode(e.Node, e.Durable)
	tx.next.NextJobID = max(tx.next.NextJobID, e.Node.HighestJob+1)
	if e.What != "" {
		tx.wakeNode(e.Node.Name)
	}
}
func (e NodeChanged) Attrs() []any {
	if e.What == "" {
		return nil
	}
	attrs := []any{"node", e.Node.Name, "what", e.What, "reason", e.Node.Reason}
	if len(e.Lost) > 0 {
		attrs = append(attrs, "lost", strings.Join(e.Lost, " "))
	}
	return attrs
}

// Reconfigured: the configuration was read again.
type Reconfigured struct{ Config *Config }

func (e Reconfigured) apply(tx *Tx) { tx.reconfigure(e.Config) }
func (e Reconfigured) Attrs() []any {
	return []any{"nodes", len(e.Config.Nodes), "partitions", len(e.Config.Partitions)}
}

package state

import (
	"encoding/binary"

	"github.com/sluice-hpc/sluice/ctld/journal"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Attempt names one attempt of a job for accounting: each requeue begins another.
type Attempt struct {
	Job      uint32
	Restarts uint32
	Node     string // set for an attempt that a restore has lost: the node that knew of it
}

// Key returns the attempt's key in the journal's bucket Finished.
func (a Attempt) Key() []byte {
	return append(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, a.Job), a.Restarts), a.Node...)
}

// AttemptOf is the inverse of Key.
func AttemptOf(key []byte) (a Attempt, ok bool) {
	if len(key) < 8 {
		return a, false
	}
	return Attempt{binary.BigEndian.Uint32(key), binary.BigEndian.Uint32(key[4:]), string(key[8:])}, true
}

// The outbox holds attempts that accounting has still to store and the table of jobs no longer has: attempts that were requeued, jobs that
// were forgotten before they could be stored, and what nodes know of jobs that a restore has lost. Its rows are in the journal's bucket
// Finished, written with the commit that changes the job, and removed by AttemptsStored. They are not kept in memory.

// putOutbox keeps an attempt that has ended until accounting has it.
func (tx *Tx) putOutbox(j *pb.JobRecord) { tx.keep(Attempt{Job: j.Id, Restarts: j.Restarts}, j) }

func (tx *Tx) keep(a Attempt, j *pb.JobRecord) {
	if tx.outbox == nil {
		tx.outbox = map[Attempt]*pb.JobRecord{}
	}
	tx.outbox[a] = j
}

// AttemptLost: a node knows of an attempt that a restore has lost, of a job that is not in the state. Job is the node's knowledge of it;
// accounting merges the reports of several nodes.
type AttemptLost struct {
	Job  *pb.JobRecord
	Node string
}

func (e AttemptLost) apply(tx *Tx) {
	tx.must = true // like the node's record, which notes that the node has reported it
	tx.keep(Attempt{Job: e.Job.Id, Restarts: e.Job.Restarts, Node: e.Node}, e.Job)
}

// Attrs is nil: the node's log line names the attempt (WhatLost).
func (e AttemptLost) Attrs() []any { return nil }

// SaysMore reports whether l tells more about a lost attempt than known does: a later attempt wins, then the script over an extern step,
// then an end over none.
func SaysMore(l, known *pb.LostAttempt) bool {
	switch {
	case l.Key.Epoch != known.Key.Epoch:
		return l.Key.Epoch > known.Key.Epoch
	case l.Key.Step != known.Key.Step:
		return l.Key.Step == pb.BatchStep
	}
	return l.Verdict != "" && known.Verdict == ""
}

func (tx *Tx) outboxRows(rows []journal.Row) ([]journal.Row, error) {
	for a, j := range tx.outbox {
		row, err := encode(journal.Finished, a.Key(), j)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// attemptsKept returns the attempts that this transaction puts into the outbox.
func (tx *Tx) attemptsKept() (kept []Attempt) {
	for a, j := range tx.outbox {
		if j != nil {
			kept = append(kept, a)
		}
	}
	return kept
}

// AttemptsStored: accounting has these attempts. It is written on a full disk too, where it makes room.
type AttemptsStored struct{ Attempts []Attempt }

func (e AttemptsStored) apply(tx *Tx) {
	tx.must = true
	for _, a := range e.Attempts {
		if tx.outbox[a] == nil { // not one that this very batch has added
			tx.keep(a, nil)
		}
	}
}

// Attrs is nil: not worth a log line.
func (e AttemptsStored) Attrs() []any { return nil }

// EndedAttempt returns the record of an attempt as it ended, when the job is requeued for the reason why.
func EndedAttempt(old *pb.JobRecord, why string, nowNS int64) *pb.JobRecord {
	n := CloneJob(old)
	n.Alloc, n.Signals = old.Alloc, nil
	if n.EndNs == 0 || n.EndNs > nowNS || !n.State.Terminal() && n.StopReason == "" {
		n.EndNs = nowNS
	}
	n.StateFlags &^= pb.JobCompleting | pb.JobConfiguring | pb.JobPowerUp
	if n.State.Terminal() {
		return n
	}
	switch why {
	case pb.StopNodeFail:
		n.State = pb.JobState_JOB_NODE_FAIL
	case pb.StopPreempt:
		n.State = pb.JobState_JOB_PREEMPTED
	case pb.StopRequeueExit, pb.StopRequeueExitHold: // requeued, yet it ended by itself
		n.StateFlags |= pb.JobRequeued
		n.State = pb.JobState_JOB_FAILED
		if n.ExitStatus == 0 {
			n.State = pb.JobState_JOB_COMPLETED
		}
	default:
		n.StateFlags |= pb.JobRequeued
	}
	return n
}

package state

import (
	"log/slog"
	"strconv"
	"time"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"golang.org/x/sys/unix"
)

// EventLevel is the level at which an event is logged. Of a job there are two lines at info, its start and its end, for each attempt;
// everything else about it is for debugging. What an administrator should look at is a warning: a node that is lost or takes no jobs, a job
// that a node could not run.
func EventLevel(e Event) slog.Level {
	switch e := e.(type) {
	case JobSubmitted, JobChanged, JobLeftNode, StepCreated, StepChanged, StepEnded:
		return slog.LevelDebug
	case JobEnded:
		if s := e.Job.State; s == pb.JobState_JOB_NODE_FAIL || s == pb.JobState_JOB_BOOT_FAIL || e.Job.Reason == pb.ReasonLaunchFailure {
			return slog.LevelWarn
		}
	case JobRequeued:
		if e.Why == pb.StopNodeFail || e.Why == pb.StopLaunch || e.Why == pb.StopProlog {
			return slog.LevelWarn
		}
	case NodeChanged:
		switch e.What {
		case "down", "drained", "not responding", "refused", "could not start a job", "resume timed out", "reboot timed out",
			WhatLost, WhatForgot:
			return slog.LevelWarn
		case "updated": // a reason is that of a node which somebody has drained or set down
			if e.Node.Reason != "" {
				return slog.LevelWarn
			}
		}
	}
	return slog.LevelInfo
}

// jobAttrs say whose job it is and where.
func jobAttrs(j *pb.JobRecord) []any {
	attrs := []any{"job", j.Id, "attempt", j.Attempt, "user", j.Spec.User, "uid", j.Spec.Uid, "account", j.Spec.Account,
		"partition", j.Partition, "nodes", j.NodeList, "cpus", j.NumCpus}
	gpus := uint64(0)
	for _, a := range j.Alloc {
		gpus += GPUsOf(a)
	}
	if gpus > 0 {
		attrs = append(attrs, "gpus", gpus)
	}
	return attrs
}

// GPUsOf is how many GPUs and MIG instances a job holds on a node; a part of one that is shared is none.
func GPUsOf(a *pb.NodeAlloc) (n uint64) {
	for _, d := range a.Devices {
		switch {
		case d.Name != "gpu" || d.Share > 0:
		case d.Count > 0:
			n += uint64(d.Count)
		default:
			n++
		}
	}
	return n
}

// endAttrs say how an attempt has ended: exit is CODE:SIGNAL as sacct has it.
func endAttrs(j *pb.JobRecord) []any {
	w := unix.WaitStatus(j.ExitStatus)
	code, sig := 0, 0
	if w.Signaled() {
		sig = int(w.Signal())
	} else {
		code = w.ExitStatus()
	}
	attrs := append(jobAttrs(j), "state", StateName(j), "exit", strconv.Itoa(code)+":"+strconv.Itoa(sig), "reason", j.Reason,
		"elapsed", elapsed(j))
	if j.ReasonDetail != "" {
		attrs = append(attrs, "detail", j.ReasonDetail)
	}
	return attrs
}

func elapsed(j *pb.JobRecord) time.Duration {
	if j.StartNs == 0 {
		return 0 // it never started
	}
	return time.Duration(j.EndNs - j.StartNs).Round(time.Millisecond)
}

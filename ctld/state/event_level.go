package state

import (
	"log/slog"
	"strconv"
	"time"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"golang.org/x/sys/unix"
)

// EventLevel returns the level at which an event is logged. Each attempt of a job has two lines at info, its start and its end; details in
// between are for debugging. Events that need an administrator's attention are warnings: a node that is lost or takes no jobs, a job that a
// node could not run.
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
		case "updated": // a node has a reason when somebody drained it or set it down
			if e.Node.Reason != "" {
				return slog.LevelWarn
			}
		}
	}
	return slog.LevelInfo
}

// jobAttrs describe a job's owner and place.
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

// GPUsOf returns the number of GPUs and MIG instances that a job holds on a node; shards do not count.
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

// endAttrs describe the end of an attempt; exit is CODE:SIGNAL as in sacct.
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

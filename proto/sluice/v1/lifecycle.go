package pb

// Verdicts: how a step ended, as its node reports it (ExitRecord.verdict).
const (
	VerdictExited       = "exited"
	VerdictSignaled     = "signaled"
	VerdictTimeout      = "timeout" // its time limit
	VerdictCancelled    = "cancelled"
	VerdictOOM          = "oom"
	VerdictOutputFailed = "output_failed" // its files could not be opened
	VerdictLaunchFailed = "launch_failed" // nothing was started: the order was wrong, or its srun could not be reached
	VerdictNodeFailed   = "node_failed"   // nothing was started, because of the node; no script can cause that
	VerdictPrologFailed = "prolog_failed"
	VerdictLost         = "lost"      // it was started, and nothing is left of it
	VerdictUnknown      = "unknown"   // the node has no record of it
	VerdictForgotten    = "forgotten" // the node has no record of it, and may have discarded one
)

// Stop reasons: why an attempt or a step is being ended (stop_reason of JobRecord, StepRecord, StepOrder and ExitRecord). They
// appear in logs and messages for administrators.
const (
	StopCancel          = "cancel"
	StopTimeout         = "timeout"
	StopPreempt         = "preempt"
	StopDone            = "done"     // its batch script has ended, or salloc or srun has released it
	StopNodeFail        = "nodefail" // one of its nodes has failed
	StopLaunch          = "launch"   // a node could not start it
	StopProlog          = "prolog"
	StopPrologSlurmctld = "prologslurmctld"
	StopRequeue         = "requeue"
	StopRequeueHold     = "requeuehold"
	StopSpecialExit     = "specialexit"
	StopRequeueExit     = "requeueexit"     // its script ended with a code of RequeueExit
	StopRequeueExitHold = "requeueexithold" // likewise RequeueExitHold
	StopCron            = "cron"            // it belongs to a crontab line and waits for its next time
	StopUnknown         = "unknown"         // the controller does not know this attempt of a node
)

// Requeues reports whether an attempt ended for this reason may be requeued (JobRecord.stop_state decides).
func Requeues(stop string) bool {
	switch stop {
	case StopRequeue, StopRequeueHold, StopSpecialExit, StopNodeFail, StopProlog, StopPrologSlurmctld, StopLaunch, StopPreempt,
		StopRequeueExit, StopRequeueExitHold:
		return true
	}
	return false
}

// Job reasons that the code compares, as squeue shows them.
const (
	ReasonHeldUser         = "JobHeldUser"
	ReasonHeldAdmin        = "JobHeldAdmin"
	ReasonLaunchFailure    = "JobLaunchFailure"
	ReasonProlog           = "Prolog"
	ReasonInactiveLimit    = "InactiveLimit"
	ReasonLaunchFailedHeld = "launch_failed_requeued_held"
	ReasonRequeuedHeld     = "job requeued in held state"
	ReasonDependencyNever  = "DependencyNeverSatisfied"
)

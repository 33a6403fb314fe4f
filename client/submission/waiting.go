package submission

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/conf/timespec"
)

// waiting records what has been reported about the reason for waiting.
type waiting struct {
	phrased bool   // Slurm's line for the first reason has been printed, if it has one
	said    string // the reason printed last
}

// unavailable has the lines that Slurm's salloc and srun print before they wait, by reason: its controller's answer to a request
// that it accepts although the job cannot start at present (recorded with 22.05.8).
var unavailable = map[string]string{
	"PartitionConfig":    msg.CodePartConfig.Phrase(),
	"PartitionNodeLimit": msg.CodePartConfig.Phrase(),
	"PartitionTimeLimit": msg.CodePartConfig.Phrase(),
	"PartitionDown":      "Partition in DOWN state",
	"ReqNodeNotAvail":    "Required node not available (down, drained or reserved)",
	"NodeDown":           "Required node not available (down, drained or reserved)",
	"JobHeldUser":        msg.CodeJobHeld.Phrase(),
	"JobHeldAdmin":       msg.CodeJobHeld.Phrase(),
}

// beyond are the reasons of jobs that request more than exists: they wait until an administrator or the user changes something.
var beyond = map[string]bool{"PartitionConfig": true, "PartitionNodeLimit": true, "PartitionTimeLimit": true, "MaxMemPerLimit": true,
	"BadConstraints": true}

// known reports whether the scheduler has considered a job.
func known(job *msg.JobRecord) bool { return job.GetReason() != "" && job.GetReason() != "None" }

// code is the first word of a reason: "ReqNodeNotAvail, UnavailableNodes:n1".
func code(reason string) string {
	word, _, _ := strings.Cut(reason, ",")
	return word
}

// NotNow is Slurm's message about --immediate without resources: the reason if it fails at once, or busy nodes after a while.
func (a *Allocation) NotNow() string {
	if text := unavailable[code(a.Job.GetReason())]; text != "" && a.Req.Run.Immediate <= 1 {
		return text
	}
	return msg.CodeNodesBusy.Phrase()
}

// sayUnavailable prints Slurm's line for the first known reason, before the message that the job waits.
func (a *Allocation) sayUnavailable(job *msg.JobRecord) {
	if a.why.phrased || !known(job) {
		return
	}
	a.why.phrased = true
	if text := unavailable[code(job.GetReason())]; text != "" && !a.Req.Quiet {
		a.Env.Infof("%s", text)
	}
}

// explains reports whether a user reads along: a program that parses standard error gets only Slurm's lines.
func (a *Allocation) explains() bool {
	return !a.Req.Quiet && (a.Req.Verbose > 0 || command.IsTerminal(a.Env.Stderr))
}

// sayWhy prints why the job waits, once per reason. A request that exceeds what exists is always reported, as an error that --quiet
// does not hide: the job would otherwise wait forever in silence.
func (a *Allocation) sayWhy(ctx context.Context, job *msg.JobRecord) {
	why := job.GetReason()
	if !known(job) || why == a.why.said || !beyond[code(why)] && !a.explains() {
		return
	}
	a.why.said = why
	detail := timespec.LocalTimes(job.GetReasonDetail(), time.Local)
	if !beyond[code(why)] {
		if detail != "" {
			why += ": " + detail
		}
		a.Env.Infof("job %d waits: %s", a.ID, why)
		return
	}
	lines := a.explained(ctx)
	if detail == "" && len(lines) > 0 {
		detail, lines = lines[0], lines[1:]
	}
	if detail != "" {
		why += ": " + detail
	}
	a.Env.Errorf("job %d waits: %s", a.ID, why)
	for _, l := range lines {
		a.Env.Errorf("%s", l)
	}
}

// explained returns the output of `sluice explain` after the reason; nil if the controller does not answer.
func (a *Allocation) explained(ctx context.Context) []string {
	reply, err := a.Client.Explain(ctx, &msg.ExplainRequest{Id: strconv.FormatUint(uint64(a.ID), 10)})
	if err != nil {
		return nil
	}
	_, text, _ := strings.Cut(timespec.LocalTimes(reply.GetText(), time.Local), "\n")
	if text = strings.TrimSpace(text); text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

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

// waiting is what has been said of why a job waits.
type waiting struct {
	phrased bool   // Slurm's line for the first reason, or that it has none
	said    string // the reason that was printed last
}

// unavailable has the lines that Slurm's salloc and srun print before they wait, by the reason for it: what its controller answers to
// a request that it takes although the job cannot start as things are (recorded with 22.05.8).
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

// beyond are the reasons of jobs that ask for more than there is: waiting does not help unless an administrator or the user changes
// something.
var beyond = map[string]bool{"PartitionConfig": true, "PartitionNodeLimit": true, "PartitionTimeLimit": true, "MaxMemPerLimit": true,
	"BadConstraints": true}

// known reports whether the scheduler has looked at a job yet.
func known(job *msg.JobRecord) bool { return job.GetReason() != "" && job.GetReason() != "None" }

// code is the word of a reason, without what follows it: "ReqNodeNotAvail, UnavailableNodes:n1".
func code(reason string) string {
	word, _, _ := strings.Cut(reason, ",")
	return word
}

// NotNow is what Slurm answers to --immediate when there are no resources: the reason at once, or that nodes are busy after a while.
func (a *Allocation) NotNow() string {
	if text := unavailable[code(a.Job.GetReason())]; text != "" && a.Req.Run.Immediate <= 1 {
		return text
	}
	return msg.CodeNodesBusy.Phrase()
}

// sayUnavailable prints Slurm's line for the first reason that is known, as it does before the job is said to wait.
func (a *Allocation) sayUnavailable(job *msg.JobRecord) {
	if a.why.phrased || !known(job) {
		return
	}
	a.why.phrased = true
	if text := unavailable[code(job.GetReason())]; text != "" && !a.Req.Quiet {
		a.Env.Infof("%s", text)
	}
}

// explains reports whether somebody reads along: a program that parses standard error sees Slurm's lines alone.
func (a *Allocation) explains() bool {
	return !a.Req.Quiet && (a.Req.Verbose > 0 || command.IsTerminal(a.Env.Stderr))
}

// sayWhy says why the job waits, once for each reason. That it asks for more than there is is said to everybody, and is an error,
// which --quiet does not hide: it would wait for good without a word.
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

// explained is what `sluice explain` says of the job after its reason; nothing when the controller does not answer.
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

package reactor

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/crontab"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Jobs of crontabs (scrontab(1)). A crontab is a text and, for each of its lines that says when, a job that begins at that moment.
// When an attempt of it has ended, the job goes back into the queue until the next moment: it keeps its id, and each run is an
// attempt of its own for accounting. Somebody who cancels it ends it for good, and its lines are commented out.

// CronJob is an entry whose job admit has checked and completed.
type CronJob struct {
	Layout              uint64 // of the view on which it was admitted
	Job                 *pb.JobRecord
	Texts               state.Texts
	FirstLine, LastLine uint32
	Digest              string
}

// UpdateCrontab replaces a user's crontab. An entry that says what one of the old crontab said keeps its job; jobs of the other old
// entries are cancelled. The reply is the *pb.CrontabRecord.
type UpdateCrontab struct {
	Caller Caller
	UID    uint32
	User   string
	Text   string
	Jobs   []CronJob
}

// maxCronJobs bounds the entries of one crontab.
const maxCronJobs = 200

// Handle writes the crontab and makes, keeps and ends its jobs.
func (c UpdateCrontab) Handle(tx *state.Tx) any {
	if len(c.Jobs) > maxCronJobs {
		return pb.NewProblem(pb.CodeAccountingPolicy, "the crontab has %d entries, the limit is %d", len(c.Jobs), maxCronJobs)
	}
	if p := roomFor(tx, c.UID, c.User, len(c.Jobs), c.Caller.Operator); p != nil { // before anything is emitted
		return p
	}
	jobs := slices.Clone(c.Jobs) // the command may be handled again
	for i := range jobs {
		if p := jobs[i].judge(tx); p != nil {
			return p
		}
	}
	kept := map[string][]*pb.CrontabEntry{}
	if old := tx.Crontab(c.UID); old != nil {
		for _, e := range old.Entries {
			if j := tx.Job(e.JobId); j != nil && state.Active(j) && j.StopReason != pb.StopCancel {
				kept[e.Digest] = append(kept[e.Digest], e)
			}
		}
	}
	if p := bytesFor(tx, c.UID, c.User, c.bytes(tx, kept), c.Caller.Operator); p != nil {
		return p
	}
	fresh := &pb.CrontabRecord{Uid: c.UID, User: c.User, Text: c.Text}
	for _, job := range jobs {
		entry := &pb.CrontabEntry{Cron: job.Job.Spec.Cron, FirstLine: job.FirstLine, LastLine: job.LastLine, Digest: job.Digest}
		if same := kept[job.Digest]; len(same) > 0 {
			entry.JobId, kept[job.Digest] = same[0].JobId, same[1:]
		} else if p := c.submit(tx, job, entry); p != nil {
			return p
		}
		fresh.Entries = append(fresh.Entries, entry)
	}
	tx.Emit(state.CrontabChanged{Crontab: fresh}) // first, so that the jobs that are cancelled now have no lines any more
	for _, e := range gone(kept) {
		if j := tx.Job(e.JobId); state.Pending(j) { // one that runs may end in peace
			_ = Cancel{Caller: c.Caller}.one(tx, &application{}, j)
		}
	}
	return fresh
}

// bytes are what the crontab and its new jobs may add to what the user holds.
func (c UpdateCrontab) bytes(tx *state.Tx, kept map[string][]*pb.CrontabEntry) int64 {
	n := int64(len(c.Text)+len(c.User)) + entryBytes - state.CrontabBytes(tx.Crontab(c.UID))
	for _, job := range c.Jobs {
		n += int64(len(job.Job.Spec.Cron)+len(job.Digest)) + entryBytes
		if len(kept[job.Digest]) == 0 {
			n += state.JobBytes(job.Job) + jobSlack + tx.NewTextBytes(job.Texts)
		}
	}
	return n
}

// entryBytes is what an entry of a crontab takes beside its texts at most, jobSlack what a job that is submitted has and one that is only
// checked has not.
const entryBytes, jobSlack = 64, 256

// gone are the entries that no line of the new crontab took over, by job.
func gone(kept map[string][]*pb.CrontabEntry) (entries []*pb.CrontabEntry) {
	for _, same := range kept {
		entries = append(entries, same...)
	}
	slices.SortFunc(entries, func(a, b *pb.CrontabEntry) int { return cmp.Compare(a.JobId, b.JobId) })
	return entries
}

// judge judges a job that was admitted on an older state again: it is refused, or gets the figures of the present one.
func (job *CronJob) judge(tx *state.Tx) *pb.Problem {
	if job.Layout == tx.View().Layout {
		return nil
	}
	job.Job = state.CloneJob(job.Job)
	job.Job.Spec = state.CloneSpec(job.Job.Spec)
	return admit.New(tx.View(), job.Job)
}

// submit makes the job of a new entry. It is not refused any more: there is room, it was judged, and what else Submit refuses (arrays,
// dependencies) the service has refused before.
func (c UpdateCrontab) submit(tx *state.Tx, job CronJob, entry *pb.CrontabEntry) *pb.Problem {
	j := state.CloneJob(job.Job)
	j.Spec = state.CloneSpec(j.Spec)
	j.Spec.BeginNs = nextRun(tx, j.Spec)
	switch out := (Submit{Job: j, Texts: job.Texts, Layout: tx.View().Layout, hasRoom: true}).Handle(tx).(type) {
	case Submitted:
		entry.JobId = out.ID
	case *pb.Problem:
		return out
	}
	return nil
}

// nextRun is when a job of a crontab begins next; one whose time never comes, which Parse has refused, waits a year.
func nextRun(tx *state.Tx, s *pb.JobSpec) int64 {
	now := time.Unix(0, tx.NowNS).UTC()
	schedule, err := crontab.Parse(s.Cron)
	if err != nil {
		return now.AddDate(1, 0, 0).UnixNano()
	}
	next := schedule.Next(now, tx.Settings().Location())
	if next.IsZero() {
		return now.AddDate(1, 0, 0).UnixNano()
	}
	return next.UnixNano()
}

// cronEnded puts a job of a crontab whose attempt has ended back into the queue, or takes its lines out of the crontab when it was
// cancelled. Follow calls it.
func cronEnded(tx *state.Tx, j *pb.JobRecord) {
	owner := tx.Crontab(j.Spec.Uid)
	at := -1
	if owner != nil {
		for i, e := range owner.Entries {
			if e.JobId == j.Id {
				at = i
			}
		}
	}
	switch {
	case at < 0: // not of the present crontab: it ends here
	case j.State == pb.JobState_JOB_CANCELLED:
		tx.Emit(state.CrontabChanged{Crontab: disabled(owner, at)})
	default:
		n := state.CloneJob(j)
		n.StopReason = pb.StopCron
		backToQueue(tx, n)
	}
}

// runAgainAt completes a record that backToQueue makes pending until the next moment.
func runAgainAt(tx *state.Tx, n *pb.JobRecord) {
	n.EligibleNs = nextRun(tx, n.Spec)
	n.Reason, n.ReasonDetail = "BeginTime", "runs again at "+timespec.FormatUTC(n.EligibleNs)+" (crontab)"
}

// identity is a specification with the groups that its user has now.
func (o *Owner) identity(s *pb.JobSpec) *pb.JobSpec {
	if o == nil || o.GID == s.Gid && slices.Equal(o.Groups, s.Groups) {
		return s
	}
	s = state.CloneSpec(s)
	s.Gid, s.Groups = o.GID, o.Groups
	return s
}

// missingRetryS is how long a job waits whose user is not found.
const missingRetryS = 120

// delayCron puts off a job whose user is not found at the moment.
func delayCron(tx *state.Tx, j *pb.JobRecord) {
	n := state.CloneJob(j)
	n.EligibleNs = tx.NowNS + missingRetryS*1e9
	n.Reason, n.ReasonDetail = "BeginTime", "of a crontab: its user is not found; tried again in two minutes"
	n.ExpectedStartNs, n.ExpectedNodes, n.Promised = 0, "", false
	tx.Emit(state.JobChanged{Job: n, What: "delayed"})
}

// holdCron holds a job whose user may have none any more. `scontrol release`, by its user as well, has it tried again.
func holdCron(tx *state.Tx, j *pb.JobRecord, why string) {
	n := state.CloneJob(j)
	n.Priority, n.HoldAdmin = 0, false
	n.Reason, n.ReasonDetail = pb.ReasonHeldUser, "of a crontab: "+why
	n.ExpectedStartNs, n.ExpectedNodes, n.Promised = 0, "", false
	tx.Emit(state.JobChanged{Job: n, What: "held"})
}

// disabledMark stands before the lines of an entry whose job was cancelled.
const disabledMark = "#DISABLED: "

// disabled is a crontab with one entry commented out.
func disabled(r *pb.CrontabRecord, at int) *pb.CrontabRecord {
	n, e := state.CloneCrontab(r), r.Entries[at]
	n.Entries = append(n.Entries[:at:at], n.Entries[at+1:]...)
	lines := strings.Split(n.Text, "\n")
	for i := int(e.FirstLine); i >= 1 && i <= int(e.LastLine) && i <= len(lines); i++ {
		if !strings.HasPrefix(lines[i-1], disabledMark) && strings.TrimSpace(lines[i-1]) != "" {
			lines[i-1] = disabledMark + lines[i-1]
		}
	}
	n.Text = strings.Join(lines, "\n")
	return n
}

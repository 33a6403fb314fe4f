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

// Jobs of crontabs (scrontab(1)). A crontab is a text and, for each line with a schedule, a job that begins at the next scheduled time.
// When an attempt of it has ended, the job is requeued for the time after that: it keeps its id, and each run is an attempt of its own for
// accounting. Cancelling it ends it for good, and its lines are commented out.

// CronJob is an entry whose job admit has checked and completed.
type CronJob struct {
	Layout              uint64 // of the view in which it was admitted
	Job                 *pb.JobRecord
	Texts               state.Texts
	FirstLine, LastLine uint32
	Digest              string
}

// UpdateCrontab replaces a user's crontab. An entry that is also in the old crontab keeps its job; jobs of the other old entries are
// cancelled. The reply is the *pb.CrontabRecord.
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
	jobs := slices.Clone(c.Jobs) // a copy, because the command may be handled again
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
	tx.Emit(state.CrontabChanged{Crontab: fresh}) // first, so that the jobs cancelled below have no lines any more
	for _, e := range gone(kept) {
		if j := tx.Job(e.JobId); state.Pending(j) { // a running one may finish
			_ = Cancel{Caller: c.Caller}.one(tx, &application{}, j)
		}
	}
	return fresh
}

// bytes returns the bytes that the crontab and its new jobs add to those of the user.
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

// entryBytes is the largest size of a crontab entry beside its texts. jobSlack is the difference in size between a submitted job and a job
// that is only checked.
const entryBytes, jobSlack = 64, 256

// gone returns the entries that are not in the new crontab, by job.
func gone(kept map[string][]*pb.CrontabEntry) (entries []*pb.CrontabEntry) {
	for _, same := range kept {
		entries = append(entries, same...)
	}
	slices.SortFunc(entries, func(a, b *pb.CrontabEntry) int { return cmp.Compare(a.JobId, b.JobId) })
	return entries
}

// judge checks a job again that was admitted on an older state: it is refused, or gets the values of the present one.
func (job *CronJob) judge(tx *state.Tx) *pb.Problem {
	if job.Layout == tx.View().Layout {
		return nil
	}
	job.Job = state.CloneJob(job.Job)
	job.Job.Spec = state.CloneSpec(job.Job.Spec)
	return admit.New(tx.View(), job.Job)
}

// submit makes the job of a new entry. It cannot be refused any more: there is room, it was judged, and the service has refused what else
// Submit refuses (arrays, dependencies).
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

// nextRun returns the next begin of a crontab job. A schedule that never comes, which Parse refuses, waits a year.
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

// cronEnded requeues a crontab job whose attempt has ended, or removes its lines from the crontab when it was cancelled. Follow calls it.
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
	case at < 0: // not in the present crontab: it ends here
	case j.State == pb.JobState_JOB_CANCELLED:
		tx.Emit(state.CrontabChanged{Crontab: disabled(owner, at)})
	default:
		n := state.CloneJob(j)
		n.StopReason = pb.StopCron
		backToQueue(tx, n)
	}
}

// runAgainAt completes a record that backToQueue has made pending until its next run.
func runAgainAt(tx *state.Tx, n *pb.JobRecord) {
	n.EligibleNs = nextRun(tx, n.Spec)
	n.Reason, n.ReasonDetail = "BeginTime", "runs again at "+timespec.FormatUTC(n.EligibleNs)+" (crontab)"
}

// identity returns a specification with its user's current groups.
func (o *Owner) identity(s *pb.JobSpec) *pb.JobSpec {
	if o == nil || o.GID == s.Gid && slices.Equal(o.Groups, s.Groups) {
		return s
	}
	s = state.CloneSpec(s)
	s.Gid, s.Groups = o.GID, o.Groups
	return s
}

// missingRetryS is the delay of a job whose user is not found.
const missingRetryS = 120

// delayCron delays a job whose user is not found at the moment.
func delayCron(tx *state.Tx, j *pb.JobRecord) {
	n := state.CloneJob(j)
	n.EligibleNs = tx.NowNS + missingRetryS*1e9
	n.Reason, n.ReasonDetail = "BeginTime", "of a crontab: its user is not found; tried again in two minutes"
	n.ExpectedStartNs, n.ExpectedNodes, n.Promised = 0, "", false
	tx.Emit(state.JobChanged{Job: n, What: "delayed"})
}

// holdCron holds a job whose user may no longer have crontab jobs. `scontrol release`, which its user may do too, tries it again.
func holdCron(tx *state.Tx, j *pb.JobRecord, why string) {
	n := state.CloneJob(j)
	n.Priority, n.HoldAdmin = 0, false
	n.Reason, n.ReasonDetail = pb.ReasonHeldUser, "of a crontab: "+why
	n.ExpectedStartNs, n.ExpectedNodes, n.Promised = 0, "", false
	tx.Emit(state.JobChanged{Job: n, What: "held"})
}

// disabledMark stands before the lines of an entry whose job was cancelled.
const disabledMark = "#DISABLED: "

// disabled returns a crontab with one entry commented out.
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

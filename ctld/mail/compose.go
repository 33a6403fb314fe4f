package mail

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// compose writes the mails for one commit, in the order of its events. It runs on the writer's goroutine and may use its index.
func compose(c state.Change, s Settings) []Letter {
	var letters []Letter
	w := &writer{change: c, settings: s, last: map[uint32]*pb.JobRecord{}, arrays: map[uint32]bool{}}
	for _, e := range c.Events {
		letters = append(letters, w.of(e)...)
	}
	return letters
}

// concernsMail reports whether an event is about a job whose user wants mail.
func concernsMail(e state.Event) bool {
	var j *pb.JobRecord
	switch e := e.(type) {
	case state.JobStarted:
		j = e.Job
	case state.JobEnded:
		j = e.Job
	case state.JobRequeued:
		j = e.Job
	case state.JobChanged:
		j = e.Job
	}
	return j.GetSpec().GetMailType() != 0
}

// writer holds the context of one commit's mails besides its events.
type writer struct {
	change   state.Change
	settings Settings
	last     map[uint32]*pb.JobRecord // the record of a job in its last event, for what a requeue forgets
	arrays   map[uint32]bool          // whose end has been reported
}

func (w *writer) of(e state.Event) (letters []Letter) {
	switch e := e.(type) {
	case state.JobStarted:
		letters = w.began(e.Job)
		w.last[e.Job.Id] = e.Job
	case state.JobLeftNode:
		w.last[e.Job.Id] = e.Job
	case state.JobEnded:
		letters = w.ended(e.Job)
		w.last[e.Job.Id] = e.Job
	case state.JobRequeued:
		letters = w.requeued(e)
	case state.JobChanged:
		if e.What == state.WhatWarned { // to every user who wants any mail
			letters = w.one(e.Job, e.Job.Spec.MailType, "GPUs idle", "GPU_IDLE")
		}
		if e.What == "dependency" && e.Job.DependencyNever {
			letters = w.one(e.Job, pb.MailInvalidDepend, "Invalid dependency", "INVALID_DEPEND")
		}
	}
	return letters
}

func (w *writer) began(j *pb.JobRecord) []Letter {
	since := j.EligibleNs
	if since == 0 || j.SubmitNs > since {
		since = j.SubmitNs
	}
	if !w.asks(j, pb.MailBegin) || !eachTask(j) && w.begunBefore(j) {
		return nil
	}
	return w.one(j, pb.MailBegin, "Began, Queued time "+clock(j.StartNs-since), "BEGIN")
}

// begunBefore reports whether a task of the array had started before this commit.
func (w *writer) begunBefore(j *pb.JobRecord) bool {
	if j.ArrayJobId == 0 {
		return false
	}
	now := 0
	for _, e := range w.change.Events {
		if s, ok := e.(state.JobStarted); ok && s.Job.ArrayJobId == j.ArrayJobId {
			if now == 0 && s.Job.Id != j.Id {
				return true // the first of this commit stands for the others
			}
			now++
		}
	}
	counts := w.change.View.ArrayCounts(j.ArrayJobId)
	return counts.Records-counts.Unbegun > now
}

func (w *writer) requeued(e state.JobRequeued) []Letter {
	if e.Why == pb.StopCron { // its end has been reported
		return nil
	}
	text := "Requeued"
	if old := w.last[e.Job.Id]; old != nil && old.StartNs != 0 {
		text += ", Run time " + clock(max(old.EndNs, w.change.View.NowNS, old.StartNs)-old.StartNs)
	}
	return w.one(e.Job, pb.MailRequeue, text, "REQUEUE")
}

// failed reports whether an end concerns --mail-type=FAIL.
func failed(s pb.JobState) bool {
	switch s {
	case pb.JobState_JOB_COMPLETED, pb.JobState_JOB_CANCELLED, pb.JobState_JOB_PREEMPTED:
		return false
	}
	return s.Terminal()
}

func (w *writer) ended(j *pb.JobRecord) (letters []Letter) {
	ran := "Run time " + clock(j.EndNs-j.StartNs)
	if j.State == pb.JobState_JOB_TIMEOUT {
		letters = w.one(j, pb.MailTime100, "Reached time limit, "+ran, "TIME_LIMIT")
	}
	if j.Reason == pb.ReasonDependencyNever {
		letters = append(letters, w.one(j, pb.MailInvalidDepend, "Invalid dependency", "INVALID_DEPEND")...)
	}
	if j.ArrayJobId != 0 && !eachTask(j) {
		return append(letters, w.arrayEnded(j)...)
	}
	text := ", " + ran + ", " + state.StateName(j)
	if j.ExitStatus&0x7f == 0 {
		text += ", ExitCode " + strconv.Itoa(int(j.ExitStatus>>8&0xff))
	}
	return append(letters, w.end(j, failed(j.State), text)...)
}

// end writes "Failed" to users who want failures, "Ended" to users who want ends.
func (w *writer) end(j *pb.JobRecord, bad bool, text string) []Letter {
	if bad && w.asks(j, pb.MailFail) {
		return w.one(j, pb.MailFail, "Failed"+text, "FAIL")
	}
	return w.one(j, pb.MailEnd, "Ended"+text, "END")
}

// arrayEnded writes one mail for all tasks, when the last of them has ended.
func (w *writer) arrayEnded(j *pb.JobRecord) []Letter {
	v := w.change.View
	if v.ArrayCounts(j.ArrayJobId).Active > 0 || w.arrays[j.ArrayJobId] {
		return nil
	}
	w.arrays[j.ArrayJobId] = true
	bad, states, lo, hi, signal := false, map[string]bool{}, uint32(255), uint32(0), uint32(0)
	for _, id := range v.ArrayRecords(j.ArrayJobId) {
		t := v.Jobs.Get(id)
		if t == nil {
			continue
		}
		bad = bad || failed(t.State)
		states[state.StateName(t)] = true
		code := t.ExitStatus >> 8 & 0xff
		lo, hi, signal = min(lo, code), max(hi, code), max(signal, t.ExitStatus&0x7f)
	}
	word := "Mixed"
	if len(states) == 1 {
		word = state.StateName(j)
	}
	text := fmt.Sprintf(", %s, ExitCode [%d-%d]", word, min(lo, hi), hi)
	if signal != 0 {
		text = fmt.Sprintf(", %s, MaxSignal [%d]", word, signal)
	}
	return w.end(j, bad, text)
}

// eachTask reports whether tasks of the array have mails of their own: only if ARRAY_TASKS was requested.
func eachTask(j *pb.JobRecord) bool { return j.Spec.GetMailType()&pb.MailArrayTasks != 0 }

func (w *writer) asks(j *pb.JobRecord, event uint32) bool { return j.Spec.GetMailType()&event != 0 }

// one writes a mail about one job, nil when its user does not want the event.
func (w *writer) one(j *pb.JobRecord, event uint32, text, word string) []Letter {
	if !w.asks(j, event) {
		return nil
	}
	return []Letter{letter(j, w.settings, text, word)}
}

// letter makes a mail with Slurm's recipient and wording: "Slurm Job_id=12 Name=x Ended, Run time 00:00:01, COMPLETED, ExitCode 0".
func letter(j *pb.JobRecord, s Settings, text, word string) Letter {
	who := fmt.Sprintf("Slurm Job_id=%d", j.Id)
	switch {
	case j.ArrayJobId != 0 && eachTask(j) && j.IsArrayTask:
		who = fmt.Sprintf("Slurm Array Task Job_id=%d_%d (%d)", j.ArrayJobId, j.ArrayTaskId, j.Id)
	case j.ArrayJobId != 0:
		who = fmt.Sprintf("Slurm Array Summary Job_id=%d_* (%d)", j.ArrayJobId, j.ArrayJobId)
	}
	to := strings.FieldsFunc(j.Spec.GetMailUser(), func(r rune) bool { return r == ',' || r == ' ' })
	if len(to) == 0 {
		to = []string{j.Spec.GetUser()}
		if s.Domain != "" {
			to[0] += "@" + s.Domain
		}
	}
	env := []string{"SLURM_JOB_ID=" + strconv.Itoa(int(j.Id)), "SLURM_JOB_NAME=" + j.Spec.GetName(), "SLURM_JOB_USER=" + j.Spec.GetUser(),
		"SLURM_JOB_MAIL_TYPE=" + word, "SLURM_JOB_STATE=" + state.StateName(j), "SLURM_JOB_PARTITION=" + j.Partition,
		"SLURM_JOB_ACCOUNT=" + j.Spec.GetAccount(),
		"SLURM_JOB_NODELIST=" + j.NodeList, "SLURM_JOB_WORK_DIR=" + j.Spec.GetWorkDir(),
		"SLURM_JOB_EXIT_CODE=" + strconv.Itoa(int(j.ExitStatus))}
	if j.ArrayJobId != 0 {
		env = append(env, "SLURM_ARRAY_JOB_ID="+strconv.Itoa(int(j.ArrayJobId)), "SLURM_ARRAY_TASK_ID="+strconv.Itoa(int(j.ArrayTaskId)))
	}
	return Letter{Job: j.Id, To: to, Subject: who + " Name=" + j.Spec.GetName() + " " + text, Env: env}
}

func clock(ns int64) string { return timespec.Clock(max(ns, 0) / 1e9) }

// limits remembers the jobs whose users were told that the time limit is near.
type limits struct {
	told map[attempt]uint32 // bits of events
}

type attempt struct{ job, number uint32 }

// sweep writes the mails that are due. It uses the view's time, which is of the same clock as the view's other times even if somebody has
// just set the clock. After a start of the controller, earlier mails count as sent.
func (l *limits) sweep(v *state.View, s Settings, nowNS int64) (letters []Letter) {
	if nowNS == 0 { // before the first look at the clock
		return nil
	}
	first := l.told == nil
	told := map[attempt]uint32{}
	for j := range v.Jobs.All() {
		asked := j.Spec.GetMailType() & (pb.MailTime50 | pb.MailTime80 | pb.MailTime90)
		if asked == 0 || j.State != pb.JobState_JOB_RUNNING || j.TimeLimitS == 0 || j.TimeLimitS == pb.Unlimited {
			continue
		}
		key := attempt{j.Id, j.Attempt}
		ran := max(0, nowNS-max(j.StartNs, j.SuspendNs)) + j.PreSuspendNs
		due := uint32(0)
		for _, m := range [...]struct {
			bit     uint32
			percent int64
		}{{pb.MailTime50, 50}, {pb.MailTime80, 80}, {pb.MailTime90, 90}} {
			if asked&m.bit == 0 || ran*100 < m.percent*int64(j.TimeLimitS)*1e9 {
				continue
			}
			due |= m.bit
			if l.told[key]&m.bit == 0 && !first {
				letters = append(letters, letter(j, s, fmt.Sprintf("Reached %d%% of time limit, Run time %s", m.percent, clock(ran)),
					fmt.Sprintf("TIME_LIMIT_%d", m.percent)))
			}
		}
		told[key] = due
	}
	l.told = told
	return letters
}

package reactor

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// cronWorld is a state with one partition and the crontab of one user, at noon UTC.
type cronWorld struct {
	t    *testing.T
	view *state.View
	now  time.Time
}

func newCronWorld(t *testing.T) *cronWorld {
	cfg := &state.Config{Settings: &state.Settings{Cluster: "c", Zone: time.UTC, RequeueDelayS: 120}, Default: "debug",
		Partitions:     []*pb.PartitionRecord{{Name: "debug", State: "UP", MaxTimeS: pb.Unlimited}},
		PartitionNodes: map[string][]string{"debug": {"n1"}},
		Nodes:          []*pb.NodeRecord{{Name: "n1", Cpus: 4}}}
	return &cronWorld{t, state.New(cfg, "c", 1), time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)}
}

// do is one turn of the loop.
func (w *cronWorld) do(cmd func(tx *state.Tx) any) (any, []state.Event) {
	tx := state.Begin(w.view, w.now.UnixNano())
	out := cmd(tx)
	Follow(tx, 0)
	events := tx.Events()
	w.view, _ = tx.Freeze()
	return out, events
}

func (w *cronWorld) write(text string, jobs ...CronJob) *pb.CrontabRecord {
	w.t.Helper()
	out, _ := w.do(UpdateCrontab{Caller: Caller{UID: 7}, UID: 7, User: "alice", Text: text, Jobs: jobs}.Handle)
	r, ok := out.(*pb.CrontabRecord)
	if !ok {
		w.t.Fatalf("refused: %v", out)
	}
	return r
}

func cronJob(cron, name string, line uint32) CronJob {
	return CronJob{Job: &pb.JobRecord{Spec: &pb.JobSpec{Uid: 7, User: "alice", Name: name, Cron: cron}, Partition: "debug",
		Reason: "None"},
		FirstLine: line, LastLine: line, Digest: cron + name}
}

// run starts a job and ends it.
func (w *cronWorld) run(id uint32, end pb.JobState) []state.Event {
	w.do(func(tx *state.Tx) any {
		n := state.CloneJob(tx.Job(id))
		n.State, n.StartNs, n.Attempt = pb.JobState_JOB_RUNNING, tx.NowNS, n.Attempt+1
		tx.Emit(state.JobStarted{Job: n})
		return nil
	})
	w.now = w.now.Add(time.Minute)
	_, events := w.do(func(tx *state.Tx) any {
		n := state.CloneJob(tx.Job(id))
		n.State, n.EndNs, n.StopReason = end, tx.NowNS, "done"
		tx.Emit(state.JobEnded{Job: n})
		return nil
	})
	return events
}

func TestCronJobRunsAgain(t *testing.T) {
	w := newCronWorld(t)
	r := w.write("0 13 * * * true\n", cronJob("0 13 * * *", "a", 1))
	id := r.Entries[0].JobId
	j := w.view.Jobs.Get(id)
	if want := time.Date(2026, 11, 20, 13, 0, 0, 0, time.UTC).UnixNano(); j.Spec.BeginNs != want || j.EligibleNs != want {
		t.Fatalf("begins at %v", time.Unix(0, j.EligibleNs).UTC())
	}
	for run := 1; run <= 3; run++ {
		w.now = time.Unix(0, w.view.Jobs.Get(id).EligibleNs).UTC()
		end := []pb.JobState{pb.JobState_JOB_COMPLETED, pb.JobState_JOB_FAILED, pb.JobState_JOB_TIMEOUT}[run-1]
		events := w.run(id, end)
		j = w.view.Jobs.Get(id)
		want := time.Date(2026, 11, 20+run, 13, 0, 0, 0, time.UTC)
		if j.State != pb.JobState_JOB_PENDING || j.EligibleNs != want.UnixNano() || j.Reason != "BeginTime" || j.Restarts != uint32(run) ||
			j.StartNs != 0 {
			t.Fatalf("after run %d: %v %s at %v, %d restarts", run, j.State, j.Reason, time.Unix(0, j.EligibleNs).UTC(), j.Restarts)
		}
		if e, ok := events[0].(state.JobEnded); !ok || e.Job.State != end {
			t.Fatalf("run %d has no record of its end: %v", run, events)
		}
	}
}

func TestCancelledCronJobIsCommentedOut(t *testing.T) {
	w := newCronWorld(t)
	r := w.write("# mine\n@daily a\n#SCRON -t 5\n@hourly b\n", cronJob("@daily", "a", 2),
		CronJob{Job: cronJob("@hourly", "b", 0).Job, FirstLine: 3, LastLine: 4, Digest: "b"})
	id := r.Entries[1].JobId
	out, _ := w.do(Cancel{Caller: Caller{UID: 7}, IDs: []string{"2"}}.Handle)
	if p := out.(Outcomes).List[0].Problem; p != nil {
		t.Fatal(p)
	}
	if j := w.view.Jobs.Get(id); j.State != pb.JobState_JOB_CANCELLED {
		t.Errorf("the job is %v", j.State)
	}
	got := w.view.Crontab(7)
	if want := "# mine\n@daily a\n#DISABLED: #SCRON -t 5\n#DISABLED: @hourly b\n"; got.Text != want || len(got.Entries) != 1 {
		t.Errorf("%d entries, text %q", len(got.Entries), got.Text)
	}
	if _, events := w.do(Cancel{Caller: Caller{UID: 8}, IDs: []string{"1"}}.Handle); len(events) != 0 {
		t.Errorf("somebody else cancelled it: %v", events)
	}
}

func TestUnchangedEntryKeepsItsJob(t *testing.T) {
	w := newCronWorld(t)
	first := w.write("@daily a\n@hourly b\n", cronJob("@daily", "a", 1), cronJob("@hourly", "b", 2))
	second := w.write("@hourly b\n@noon c\n", cronJob("@hourly", "b", 1), cronJob("@noon", "c", 2))
	if second.Entries[0].JobId != first.Entries[1].JobId || second.Entries[0].FirstLine != 1 {
		t.Errorf("b: job %d, was %d", second.Entries[0].JobId, first.Entries[1].JobId)
	}
	if j := w.view.Jobs.Get(first.Entries[0].JobId); j.State != pb.JobState_JOB_CANCELLED {
		t.Errorf("a, which is no more, is %v", j.State)
	}
	if got := w.view.Crontab(7); got.Text != "@hourly b\n@noon c\n" {
		t.Errorf("text %q", got.Text)
	}
	w.write("")
	if w.view.Crontab(7) != nil {
		t.Errorf("removed, there is still %v", w.view.Crontab(7))
	}
	for j := range w.view.Jobs.All() {
		if state.Active(j) {
			t.Errorf("job %d is %v without a crontab", j.Id, j.State)
		}
	}
}

func TestRunningJobOfAnOldCrontabEndsForGood(t *testing.T) {
	w := newCronWorld(t)
	id := w.write("@daily a\n", cronJob("@daily", "a", 1)).Entries[0].JobId
	w.do(func(tx *state.Tx) any {
		n := state.CloneJob(tx.Job(id))
		n.State, n.StartNs = pb.JobState_JOB_RUNNING, tx.NowNS
		tx.Emit(state.JobStarted{Job: n})
		return nil
	})
	w.write("")
	if j := w.view.Jobs.Get(id); j.State != pb.JobState_JOB_RUNNING {
		t.Fatalf("the running job is %v", j.State)
	}
	w.run(id, pb.JobState_JOB_COMPLETED)
	if j := w.view.Jobs.Get(id); j.State != pb.JobState_JOB_COMPLETED {
		t.Errorf("the job is %v", j.State)
	}
}

func TestCrontabIsBounded(t *testing.T) {
	w := newCronWorld(t)
	var jobs []CronJob
	for range maxCronJobs + 1 {
		jobs = append(jobs, cronJob("@daily", "a", 1))
	}
	out, events := w.do(UpdateCrontab{Caller: Caller{UID: 7}, UID: 7, Jobs: jobs}.Handle)
	if p, ok := out.(*pb.Problem); !ok || len(events) != 0 || p.Code != uint32(pb.CodeAccountingPolicy) ||
		!strings.Contains(p.Error(), "201 entries, the limit is 200") {
		t.Errorf("%v, %d events", out, len(events))
	}
}

// TestCronJobStartsAsItsOwnerIsNow: the crontab may be years old.
func TestCronJobStartsAsItsOwnerIsNow(t *testing.T) {
	w := newCronWorld(t)
	id := w.write("* * * * * a", cronJob("* * * * *", "a", 1)).Entries[0].JobId
	begin := func(o *Owner) *pb.JobRecord {
		w.do(func(tx *state.Tx) any {
			n := state.CloneJob(tx.Job(id))
			n.Priority = 1
			tx.Emit(state.JobChanged{Job: n, What: "released"})
			return nil
		})
		w.do(func(tx *state.Tx) any {
			return start(tx, &PlannedStart{ID: id, Task: -1, Spec: tx.Job(id).Spec, Partition: "debug", Owner: o})
		})
		return w.view.Jobs.Get(id)
	}
	if j := begin(&Owner{Problem: "uid 7 no longer has an account"}); !state.Pending(j) || j.Priority != 0 || j.HoldAdmin ||
		j.Reason != "JobHeldUser" || j.ReasonDetail != "of a crontab: uid 7 no longer has an account" {
		t.Errorf("without an account: %v", j)
	}
	w.do(Control{Caller: Caller{UID: 7}, Verb: "release", IDs: []string{strconv.Itoa(int(id))}}.Handle)
	if j := w.view.Jobs.Get(id); j.Priority == 0 || j.ReasonDetail != "" {
		t.Errorf("released by its user: %v", j)
	}
	if j := begin(&Owner{Missing: true}); !state.Pending(j) || j.Priority == 0 || j.Reason != "BeginTime" ||
		j.EligibleNs != w.now.Add(missingRetryS*time.Second).UnixNano() {
		t.Errorf("while its user is not found: %v", j)
	}
	was := &pb.JobSpec{Uid: 7, Gid: 7, Groups: []uint32{7, 8}}
	now := &Owner{GID: 70, Groups: []uint32{70, 71}}
	if s := now.identity(was); s.Uid != 7 || s.Gid != 70 || !slices.Equal(s.Groups, now.Groups) {
		t.Errorf("with other groups: %v", s)
	}
	for _, o := range []*Owner{nil, {GID: 7, Groups: []uint32{7, 8}}} {
		if s := o.identity(was); s != was || s.Gid != 7 {
			t.Errorf("%v: %v", o, s)
		}
	}
}

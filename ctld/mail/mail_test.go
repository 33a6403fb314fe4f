package mail

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/internal/test/leaktest"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// history applies events, commit by commit, and gives the subjects of each commit's letters.
type history struct{ view *state.View }

func newHistory() *history {
	return &history{state.New(&state.Config{Settings: &state.Settings{Cluster: "c"}}, "c", 1)}
}

func (h *history) commit(events ...state.Event) (subjects []string) {
	tx := state.Begin(h.view, 100e9)
	for _, e := range events {
		tx.Emit(e)
	}
	v, c := tx.Freeze()
	h.view = v
	for _, l := range compose(c, Settings{}) {
		subjects = append(subjects, strings.TrimPrefix(l.Subject, "Slurm "))
	}
	return subjects
}

func job(id uint32, mail uint32) *pb.JobRecord {
	return &pb.JobRecord{Id: id, SubmitNs: 10e9, EligibleNs: 10e9, Spec: &pb.JobSpec{Name: "x", User: "alice", MailType: mail}}
}

func with(j *pb.JobRecord, change func(*pb.JobRecord)) *pb.JobRecord {
	n := state.CloneJob(j)
	change(n)
	return n
}

func started(j *pb.JobRecord) state.Event {
	return state.JobStarted{Job: with(j, func(j *pb.JobRecord) { j.State, j.StartNs = pb.JobState_JOB_RUNNING, 13e9 })}
}

func ended(j *pb.JobRecord, s pb.JobState, status uint32) state.Event {
	return state.JobEnded{Job: with(j, func(j *pb.JobRecord) { j.State, j.StartNs, j.EndNs, j.ExitStatus = s, 13e9, 14e9, status })}
}

const all = pb.MailBegin | pb.MailEnd | pb.MailFail | pb.MailRequeue | pb.MailInvalidDepend

func TestSubjects(t *testing.T) {
	for name, c := range map[string]struct {
		mail uint32
		last func(j *pb.JobRecord) state.Event
		want string
	}{
		"begin": {all, started, "Job_id=12 Name=x Began, Queued time 00:00:03"},
		"end": {all, func(j *pb.JobRecord) state.Event { return ended(j, pb.JobState_JOB_COMPLETED, 0) },
			"Job_id=12 Name=x Ended, Run time 00:00:01, COMPLETED, ExitCode 0"},
		"fail": {all, func(j *pb.JobRecord) state.Event { return ended(j, pb.JobState_JOB_FAILED, 3<<8) },
			"Job_id=12 Name=x Failed, Run time 00:00:01, FAILED, ExitCode 3"},
		"fail, END alone": {pb.MailEnd, func(j *pb.JobRecord) state.Event { return ended(j, pb.JobState_JOB_FAILED, 3<<8) },
			"Job_id=12 Name=x Ended, Run time 00:00:01, FAILED, ExitCode 3"},
		"end, FAIL alone": {pb.MailFail, func(j *pb.JobRecord) state.Event { return ended(j, pb.JobState_JOB_COMPLETED, 0) }, ""},
		"signal": {all, func(j *pb.JobRecord) state.Event { return ended(j, pb.JobState_JOB_FAILED, 9) },
			"Job_id=12 Name=x Failed, Run time 00:00:01, FAILED"},
		"cancel": {all, func(j *pb.JobRecord) state.Event { return ended(j, pb.JobState_JOB_CANCELLED, 0) },
			"Job_id=12 Name=x Ended, Run time 00:00:01, CANCELLED, ExitCode 0"},
		"timeout": {pb.MailTime100, func(j *pb.JobRecord) state.Event { return ended(j, pb.JobState_JOB_TIMEOUT, 0) },
			"Job_id=12 Name=x Reached time limit, Run time 00:00:01"},
		"timeout, ALL": {all, func(j *pb.JobRecord) state.Event { return ended(j, pb.JobState_JOB_TIMEOUT, 0) },
			"Job_id=12 Name=x Failed, Run time 00:00:01, TIMEOUT, ExitCode 0"},
		"nothing asked": {0, started, ""},
		"requeue": {all, func(j *pb.JobRecord) state.Event {
			return state.JobRequeued{Job: with(j, func(j *pb.JobRecord) { j.Restarts++ }), Why: "requeue"}
		}, "Job_id=12 Name=x Requeued"},
		"requeue of cron": {all, func(j *pb.JobRecord) state.Event { return state.JobRequeued{Job: j, Why: "cron"} }, ""},
		"never satisfied": {all, func(j *pb.JobRecord) state.Event {
			return state.JobChanged{Job: with(j, func(j *pb.JobRecord) { j.DependencyNever = true }), What: "dependency"}
		}, "Job_id=12 Name=x Invalid dependency"},
		"idle GPUs": {pb.MailFail,
			func(j *pb.JobRecord) state.Event { return state.JobChanged{Job: j, What: "GPUs idle, user warned"} },
			"Job_id=12 Name=x GPUs idle"},
		"idle, only marked": {all, func(j *pb.JobRecord) state.Event { return state.JobChanged{Job: j, What: "GPUs idle"} }, ""},
		"idle, no mail":     {0, func(j *pb.JobRecord) state.Event { return state.JobChanged{Job: j, What: "GPUs idle, user warned"} }, ""},
		"other dependency":  {all, func(j *pb.JobRecord) state.Event { return state.JobChanged{Job: j, What: "dependency"} }, ""},
	} {
		h := newHistory()
		j := job(12, c.mail)
		h.commit(state.JobSubmitted{Job: j})
		if got := strings.Join(h.commit(c.last(j)), "|"); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// A requeue tells how long the attempt ran, which its own record has forgotten.
func TestRequeueRunTime(t *testing.T) {
	h := newHistory()
	j := job(12, all)
	h.commit(state.JobSubmitted{Job: j}, started(j))
	run := h.view.Jobs.Get(12)
	got := h.commit(state.JobLeftNode{Job: with(run, func(j *pb.JobRecord) { j.EndNs = 100e9 })},
		state.JobRequeued{Job: with(j, func(j *pb.JobRecord) { j.Restarts++ }), Why: "requeue"})
	if want := []string{"Job_id=12 Name=x Requeued, Run time 00:01:27"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func array(mail uint32, tasks ...uint32) (all []*pb.JobRecord) {
	for i, task := range tasks {
		j := job(uint32(12+i), mail)
		j.ArrayJobId, j.ArrayTaskId, j.IsArrayTask = 12, task, true
		all = append(all, j)
	}
	return all
}

func TestArrayAsAWhole(t *testing.T) {
	h := newHistory()
	a := array(all, 1, 2, 3)
	h.commit(state.JobSubmitted{Job: a[0]}, state.JobSubmitted{Job: a[1]}, state.JobSubmitted{Job: a[2]})
	for i, step := range []struct {
		events []state.Event
		want   []string
	}{
		{[]state.Event{started(a[0]), started(a[1])}, []string{"Array Summary Job_id=12_* (12) Name=x Began, Queued time 00:00:03"}},
		{[]state.Event{started(a[2])}, nil},
		{[]state.Event{ended(a[1], pb.JobState_JOB_COMPLETED, 0)}, nil},
		{[]state.Event{ended(a[0], pb.JobState_JOB_FAILED, 1<<8), ended(a[2], pb.JobState_JOB_COMPLETED, 0)},
			[]string{"Array Summary Job_id=12_* (12) Name=x Failed, Mixed, ExitCode [0-1]"}},
	} {
		if got := h.commit(step.events...); !reflect.DeepEqual(got, step.want) {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
	}
}

func TestArrayTasks(t *testing.T) {
	h := newHistory()
	a := array(all|pb.MailArrayTasks, 1, 2)
	h.commit(state.JobSubmitted{Job: a[0]}, state.JobSubmitted{Job: a[1]})
	got := h.commit(started(a[1]), ended(a[1], pb.JobState_JOB_FAILED, 9))
	if want := []string{"Array Task Job_id=12_2 (13) Name=x Began, Queued time 00:00:03",
		"Array Task Job_id=12_2 (13) Name=x Failed, Run time 00:00:01, FAILED"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTimeLimits(t *testing.T) {
	h := newHistory()
	j := with(job(12, pb.MailTime50|pb.MailTime80|pb.MailTime90), func(j *pb.JobRecord) {
		j.State, j.StartNs, j.TimeLimitS, j.Attempt = pb.JobState_JOB_RUNNING, 100e9, 100, 1
	})
	h.commit(state.JobSubmitted{Job: j})
	var l limits
	at := func(s int64) (subjects []string) {
		for _, x := range l.sweep(h.view, Settings{}, s*1e9) {
			subjects = append(subjects, strings.TrimPrefix(x.Subject, "Slurm Job_id=12 Name=x "))
		}
		return subjects
	}
	for _, step := range []struct {
		s    int64
		want []string
	}{
		{149, nil}, {150, []string{"Reached 50% of time limit, Run time 00:00:50"}}, {151, nil},
		{195, []string{"Reached 80% of time limit, Run time 00:01:35", "Reached 90% of time limit, Run time 00:01:35"}}, {196, nil},
	} {
		if got := at(step.s); !reflect.DeepEqual(got, step.want) {
			t.Errorf("at %d s: %q, want %q", step.s, got, step.want)
		}
	}
	l = limits{} // the controller was started anew: what was due has been told
	if got := at(197); got != nil {
		t.Errorf("after a start: %q", got)
	}
}

func TestRecipients(t *testing.T) {
	j := job(1, all)
	if l := letter(j, Settings{Domain: "lab.org"}, "", ""); !reflect.DeepEqual(l.To, []string{"alice@lab.org"}) {
		t.Errorf("to %q", l.To)
	}
	j.Spec.MailUser = "a@b.c, d"
	if l := letter(j, Settings{Domain: "lab.org"}, "", ""); !reflect.DeepEqual(l.To, []string{"a@b.c", "d"}) {
		t.Errorf("to %q", l.To)
	}
	for s, want := range map[string]bool{"alice": true, "a.b+c@d-e.f": true, "": false, "-o/etc/x": false, "|sh": false,
		"/etc/passwd": false, "a b": false, "a\nb": false, "!x": false, "~x": false,
		"+inbox": false, "%root": false, "=inbox": false, "@x": false, "a=b%c@d": true} {
		if address(s) != want {
			t.Errorf("address(%q) = %v", s, !want)
		}
	}
}

// program is a MailProg that writes what it was called with into a file, and how to read it.
func program(t *testing.T, name string) (path string, called func() string) {
	dir := t.TempDir()
	path = filepath.Join(dir, name)
	out := filepath.Join(dir, "out")
	script := "#!/bin/sh\n{ for a in \"$@\"; do echo \"<$a>\"; done; cat; echo \"job $SLURM_JOB_ID of $SLURM_CLUSTER_NAME\"; } > " + out +
		"\n"
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return path, func() string { b, _ := os.ReadFile(out); return string(b) }
}

func TestProgramGetsArguments(t *testing.T) {
	l := Letter{Job: 7, To: []string{"alice"}, Subject: "Slurm Job_id=7 Name=$(touch /tmp/x); Ended", Env: []string{"SLURM_JOB_ID=7"}}
	path, called := program(t, "mail")
	if err := run(context.Background(), Settings{Program: path, Cluster: "c1"}, l); err != nil {
		t.Fatal(err)
	}
	if got, want := called(), "<-s>\n<Slurm Job_id=7 Name=$(touch /tmp/x); Ended>\n<alice>\njob 7 of c1\n"; got != want {
		t.Errorf("mail got %q, want %q", got, want)
	}
	path, called = program(t, "sendmail")
	if err := run(context.Background(), Settings{Program: path, Cluster: "c1"}, l); err != nil {
		t.Fatal(err)
	}
	if got, want := called(), "<-i>\n<-->\n<alice>\nTo: alice\nSubject: "+l.Subject+"\n\njob 7 of c1\n"; got != want {
		t.Errorf("sendmail got %q, want %q", got, want)
	}
	if err := run(context.Background(), Settings{Program: path}, Letter{To: []string{"|sh"}}); err == nil ||
		!strings.Contains(err.Error(), "is not a valid mail address") {
		t.Errorf("a command as recipient: %v", err)
	}
	if err := run(context.Background(), Settings{Program: "/no/such"}, l); err == nil || !strings.Contains(err.Error(), "MailProg") {
		t.Errorf("no program: %v", err)
	}
}

// Run sends what Changed queued, goes on after a failure, and ends with its context.
func TestRun(t *testing.T) {
	h := newHistory()
	sent := make(chan string, 10)
	first := h.view
	p := New(func() Settings { return Settings{} }, func() *state.View { return first }, slog.New(slog.DiscardHandler))
	p.send = func(_ context.Context, _ Settings, l Letter) error {
		sent <- l.Subject
		if l.Job == 1 {
			return errors.New("no")
		}
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { p.Run(ctx); close(done) }()
	for id := uint32(1); id <= 2; id++ {
		j := job(id, all)
		tx := state.Begin(h.view, 0)
		tx.Emit(state.JobSubmitted{Job: j})
		tx.Emit(started(j))
		v, c := tx.Freeze()
		h.view = v
		p.Changed(c)
		<-sent
	}
	cancel()
	<-done
}

// A full queue costs letters and never blocks the writer.
func TestQueueIsBounded(t *testing.T) {
	p := New(func() Settings { return Settings{} }, nil, slog.New(slog.DiscardHandler))
	for range queueSize + 10 {
		p.put(Letter{})
	}
	if len(p.queue) != queueSize || p.dropped.Load() != 10 {
		t.Errorf("%d wait, %d dropped", len(p.queue), p.dropped.Load())
	}
}

// An array that asked for mail at its end as a whole gets one mail for it, in any order of its tasks and commits.
func TestOneSummary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory()
		var tasks []uint32
		for i := range rapid.IntRange(1, 6).Draw(t, "tasks") {
			tasks = append(tasks, uint32(i))
		}
		a := array(pb.MailEnd|pb.MailFail|pb.MailBegin, tasks...)
		for _, j := range a {
			h.commit(state.JobSubmitted{Job: j})
		}
		var events []state.Event
		for _, j := range rapid.Permutation(a).Draw(t, "starts") {
			events = append(events, started(j))
		}
		for _, j := range rapid.Permutation(a).Draw(t, "ends") {
			events = append(events, ended(j,
				rapid.SampledFrom([]pb.JobState{pb.JobState_JOB_COMPLETED, pb.JobState_JOB_FAILED, pb.JobState_JOB_CANCELLED}).Draw(t,
					"state"), 0))
		}
		var got []string
		for len(events) > 0 {
			n := rapid.IntRange(1, len(events)).Draw(t, "batch")
			got = append(got, h.commit(events[:n]...)...)
			events = events[n:]
		}
		if len(got) != 2 || !strings.Contains(got[0], "Began") || !strings.Contains(got[1], "ed, ") {
			t.Fatalf("letters %q", got)
		}
	})
}

package jobcomp

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

func at(t *testing.T, clock string) int64 {
	t.Helper()
	when, err := time.ParseInLocation("2006-01-02T15:04:05", "2026-11-22T"+clock, time.Local)
	if err != nil {
		t.Fatal(err)
	}
	return when.UnixNano()
}

// base is a job as `sbatch --wrap …` of the recorded lines made it.
func base(t *testing.T, id uint32, submit, start, end string) *pb.JobRecord {
	return &pb.JobRecord{Id: id, State: pb.JobState_JOB_COMPLETED, Partition: "debug", TimeLimitS: 1800, StartNs: at(t, start),
		EndNs: at(t, end), NodeList: "n1",
		NumNodes: 1, NumCpus: 1, AllocTres: "cpu=1,mem=100M,node=1,billing=1", SubmitNs: at(t, submit), EligibleNs: at(t, submit),
		Alloc: []*pb.NodeAlloc{{Node: "n1", Cpus: 1, Ended: true}},
		Spec:  &pb.JobSpec{User: "root", Group: "root", Name: "wrap", WorkDir: "/tmp/effects-o", Account: "root", Qos: "normal"}}
}

// recorded are the records whose lines in testdata were written by Slurm 22.05.
func recorded(t *testing.T) []*pb.JobRecord {
	task := base(t, 100005, "11:53:44", "11:53:44", "11:53:44")
	task.State, task.StateFlags, task.ExitStatus, task.NodeList = pb.JobState_JOB_FAILED, pb.JobRequeued, 11<<8, "n2" // RequeueExitHold
	task.IsArrayTask, task.ArrayJobId, task.ArrayTaskId = true, 100005, 2
	cancelled := base(t, 100010, "12:18:26", "12:18:27", "12:18:30")
	cancelled.State, cancelled.ExitStatus, cancelled.Partition, cancelled.NodeList, cancelled.NumNodes,
		cancelled.NumCpus = pb.JobState_JOB_CANCELLED, 15, "gpu", "g[1-2]", 2, 2
	cancelled.AllocTres = "cpu=2,mem=200M,node=2,billing=2,gres/gpu=2"
	named := base(t, 100015, "12:20:36", "12:20:37", "12:20:37")
	named.State, named.ExitStatus, named.Spec.Name = pb.JobState_JOB_CANCELLED, 15, "na me"
	limited := base(t, 100016, "12:20:38", "12:20:38", "12:20:39")
	limited.Spec.Name, limited.Partition, limited.TimeLimitS, limited.NodeList, limited.NumNodes, limited.NumCpus = "x", "long", 93784,
		"n[1-2]", 2, 6
	limited.AllocTres, limited.Spec.Wckey = "cpu=6,mem=600M,node=2,billing=6", "foo"
	endless := base(t, 100017, "12:20:38", "12:20:38", "12:20:39")
	endless.TimeLimitS, endless.NodeList, endless.Partition, endless.AllocTres = pb.Unlimited, "n3", "long",
		"cpu=1,mem=4000M,node=1,billing=1"
	pending := base(t, 100018, "12:20:38", "12:20:38", "12:20:38")
	pending.State, pending.Alloc, pending.NodeList, pending.AllocTres, pending.ReqTres = pb.JobState_JOB_CANCELLED, nil, "", "",
		"cpu=1,mem=100M,node=1,billing=1"
	pending.EligibleNs = at(t, "13:20:38")
	requeued := base(t, 100019, "12:20:38", "12:20:38", "12:20:39")
	requeued.State, requeued.StateFlags, requeued.NodeList = pb.JobState_JOB_RUNNING, pb.JobRequeued, "n2"
	return []*pb.JobRecord{task, cancelled, named, limited, endless, pending, requeued}
}

func TestLineAsSlurmWritesIt(t *testing.T) {
	b, err := os.ReadFile("testdata/slurm-22.05.log")
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, j := range recorded(t) {
		got.WriteString(line(j, "compat"))
	}
	want := strings.Split(string(b), "\n")
	for i, l := range strings.Split(got.String(), "\n") {
		if l != want[i] {
			t.Errorf("line %d:\n%q, want\n%q", i, l, want[i])
		}
	}
}

// TestOnceAcrossAKill: a controller that was killed between the commit of an end and its line, or between the line and the mark, leaves one
// line of each end, and nothing of what ended before there was such a log.
func TestOnceAcrossAKill(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "jobcomp.log")
	v := state.New(&state.Config{Settings: &state.Settings{}}, "c", 1)
	jobs := recorded(t)[1:5]
	for _, j := range jobs {
		tx := state.Begin(v, j.EndNs)
		tx.Emit(state.JobEnded{Job: j})
		v, _ = tx.Freeze()
	}
	fresh := func(view *state.View) *Log {
		return New(dir, func() Settings { return Settings{Path: path, Cluster: "compat"} }, func() *state.View { return view },
			slog.New(slog.DiscardHandler))
	}
	fresh(v).catchUp(t.Context())
	if _, err := os.Stat(path); err == nil {
		t.Error("ends from before the log was configured were written")
	}
	first := fresh(v)
	first.latest = 0
	if err := first.write(jobs[:2]); err != nil { // and is killed
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "jobcomp.mark"), []byte("0"), 0o600); err != nil { // before it has moved the mark
		t.Fatal(err)
	}
	fresh(v).catchUp(t.Context())
	fresh(v).catchUp(t.Context())
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range jobs {
		if n := strings.Count(string(b), line(j, "compat")); n != 1 {
			t.Errorf("job %d has %d lines", j.Id, n)
		}
	}
}

// TestOnceWhileStarting: an end that is committed before Run has caught up is in the view and in the queue, and has one line; so has one
// whose line was rotated away, and one that its node reported late is not forgotten.
func TestOnceWhileStarting(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "jobcomp.log")
	v := state.New(&state.Config{Settings: &state.Settings{}}, "c", 1)
	jobs := recorded(t)[1:5]
	late := jobs[0]
	late.EndNs = jobs[1].EndNs - int64(5*time.Minute)
	for _, j := range jobs {
		tx := state.Begin(v, j.EndNs)
		tx.Emit(state.JobEnded{Job: j})
		v, _ = tx.Freeze()
	}
	for name, text := range map[string]string{
		"jobcomp.mark":  strconv.FormatInt(jobs[1].EndNs, 10),
		"jobcomp.log.1": line(jobs[1], "compat"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l := New(dir, func() Settings { return Settings{Path: path, Cluster: "compat"} }, func() *state.View { return v },
		slog.New(slog.DiscardHandler))
	l.Changed(state.Change{Events: []state.Event{state.JobEnded{Job: jobs[2]}}})
	l.Changed(state.Change{Events: []state.Event{state.JobEnded{Job: jobs[3]}}})
	ended, stop := context.WithCancel(t.Context())
	stop()
	l.Run(ended)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{1, 0, 1, 1} {
		if got := strings.Count(string(b), line(jobs[i], "compat")); got != want {
			t.Errorf("job %d has %d lines, want %d", jobs[i].Id, got, want)
		}
	}
}

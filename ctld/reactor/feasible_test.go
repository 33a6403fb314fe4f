package reactor

import (
	"fmt"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestUpdateBeyondTheNodes: an update to any part of a request that no node can meet is refused and changes nothing. On a held job it is
// accepted, as in Slurm, which looks for nodes only when a job may start.
func TestUpdateBeyondTheNodes(t *testing.T) {
	for _, tt := range []struct {
		key, value string
		code       pb.Code
	}{
		{"NumCPUs", "9", pb.CodeTooManyCPUs}, // one more than there are: in the words for the partition
		{"CPUs/Task", "5", pb.CodeNodeConfig},
		{"MinCPUsNode", "5", pb.CodeNodeConfig},
		{"MinMemoryNode", "4001", pb.CodeNodeConfig},
		{"MinMemoryCPU", "4001", pb.CodeNodeConfig},
		{"MinTmpDiskNode", "1", pb.CodeNodeConfig},
		{"ReqSockets", "2", pb.CodeNodeConfig},
		{"ReqThreads", "2", pb.CodeNodeConfig},
		{"TasksPerNode", "5", pb.CodeNodeConfig},
		{"ExcNodeList", "n[1-2]", pb.CodeNodeConfig},
		{"Features", "gpu", pb.CodeInvalidFeature},
		{"Gres", "gpu:1", pb.CodeInvalidGres},
	} {
		t.Run(tt.key, func(t *testing.T) {
			b := newBench(t, func(s *state.Settings) { s.EnforcePartLimits = "ALL" })
			id := b.submit(&pb.JobSpec{NumTasks: 1, Name: "j"})
			before := b.job(id)
			cmd := UpdateJob{Caller: root, IDs: []string{fmt.Sprint(id)}, Set: []*pb.KeyValue{{Key: tt.key, Value: tt.value}}}
			if p := b.do(cmd).(Outcomes).List[0].Problem; p.GetCode() != uint32(tt.code) {
				t.Errorf("%v, want code %d", p, tt.code)
			}
			if b.job(id) != before {
				t.Error("the job has changed")
			}
			b.do(Control{Caller: root, Verb: "hold", IDs: []string{fmt.Sprint(id)}})
			p := b.do(cmd).(Outcomes).List[0].Problem
			if held := tt.code == pb.CodeNodeConfig; held != (p == nil) {
				t.Errorf("of a held job: %v", p)
			}
		})
	}
}

// TestJudgedOnTheStateOfTheMoment: a submission that was admitted on an older state is judged again by the writer when what it was
// judged by has changed meanwhile, and not when only jobs have come and gone.
func TestJudgedOnTheStateOfTheMoment(t *testing.T) {
	submission := func(b *bench) Submit {
		j, p := admit.Job(b.view, &pb.JobSpec{Name: "j", Uid: alice.UID, User: "alice", ReqNodes: "n2"}, "")
		if p != nil {
			t.Fatal(p)
		}
		return Submit{Job: j, Layout: b.view.Layout}
	}
	b := newBench(t, nil)
	first, second := submission(b), submission(b)
	b.start(b.submit(&pb.JobSpec{NumTasks: 1, Name: "other"}), "n1")
	b.do(NodeGone{Node: "n2"})
	if b.view.Layout != first.Layout {
		t.Error("a started job or a node that is gone has changed the layout")
	}
	if _, ok := b.do(first).(Submitted); !ok {
		t.Error("refused")
	}
	b.do(UpdatePartition{Caller: root, Name: "debug", Set: keys("Nodes", "n1")})
	if p, ok := b.do(second).(*pb.Problem); !ok || p.Code != uint32(pb.CodeNodeConfig) {
		t.Errorf("%v, want a refusal: the node is not of the partition any more", p)
	}
}

// TestFiguresOfTheMoment: a job that is judged again takes its limit and its number of nodes from the state of that moment, submitted or of
// a crontab.
func TestFiguresOfTheMoment(t *testing.T) {
	for _, how := range []string{"submit", "crontab"} {
		b := newBench(t, nil)
		j, p := admit.Job(b.view, &pb.JobSpec{Name: "j", Uid: alice.UID, User: "alice", NumTasks: 4}, "")
		if p != nil {
			t.Fatal(p)
		}
		old := b.view.Layout
		b.do(UpdatePartition{Caller: root, Name: "debug", Set: keys("DefaultTime", "10")})
		if how == "submit" {
			b.do(Submit{Job: j, Layout: old})
		} else {
			j.Spec.Cron = "@daily"
			b.do(UpdateCrontab{Caller: alice, UID: alice.UID, User: "alice", Text: "@daily true", Jobs: []CronJob{{Job: j, Layout: old}}})
		}
		if got := b.job(1).TimeLimitS; got != 600 {
			t.Errorf("%s: a limit of %d s, want that of the present DefaultTime", how, got)
		}
	}
}

// TestRequeueBeyondTheNodes: a job that no node could hold any more is not ended for a requeue that could never start.
func TestRequeueBeyondTheNodes(t *testing.T) {
	b := newBench(t, nil)
	id := b.submit(&pb.JobSpec{NumTasks: 1, Name: "j", ReqNodes: "n2"})
	b.start(id, "n2")
	b.do(UpdatePartition{Caller: root, Name: "debug", Set: keys("Nodes", "n1")})
	requeue := func(verb string) *pb.Problem {
		return b.do(Control{Caller: root, Verb: verb, IDs: []string{fmt.Sprint(id)}}).(Outcomes).List[0].Problem
	}
	if p := requeue("requeue"); p.GetCode() != uint32(pb.CodeNodeConfig) {
		t.Errorf("%v, want a refusal", p)
	}
	if got := b.state(id); got != "RUNNING None" {
		t.Errorf("the job is %s", got)
	}
	if p := requeue("requeuehold"); p != nil {
		t.Errorf("in order to be changed: %v", p)
	}
}

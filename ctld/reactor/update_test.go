package reactor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

func TestUpdateJob(t *testing.T) {
	b := newBench(t, nil)
	id := b.submit(&pb.JobSpec{})
	set := func(c Caller, kv ...string) *pb.Problem {
		u := UpdateJob{Caller: c, IDs: []string{fmt.Sprint(id)}}
		for i := 0; i < len(kv); i += 2 {
			u.Set = append(u.Set, &pb.KeyValue{Key: kv[i], Value: kv[i+1]})
		}
		return b.do(u).(Outcomes).List[0].Problem
	}
	if p := set(alice, "TimeLimit", "10", "JobName", "x", "NumNodes", "2"); p != nil {
		t.Fatal(p)
	}
	if j := b.job(id); j.TimeLimitS != 600 || j.Spec.Name != "x" || j.NumNodes != 2 {
		t.Error(j)
	}
	for _, c := range []struct {
		by   Caller
		kv   []string
		code pb.Code
	}{
		{bob, []string{"JobName", "y"}, pb.CodeUserID},
		{alice, []string{"Priority", "4294967294"}, pb.CodeAccessDenied},
		{alice, []string{"Nice", "-5"}, pb.CodeAccessDenied},
		{alice, []string{"Partition", "nope"}, pb.CodeInvalidPartition},
		{alice, []string{"TimeLimit", "soon"}, pb.CodeInvalidTimeLimit},
		{alice, []string{"TimeLimit-", "10"}, pb.CodeInvalidTimeLimit}, // nothing would be left
		{alice, []string{"Features", "nosuch"}, pb.CodeInvalidFeature},
		{alice, []string{"Colour", "red"}, pb.CodeNotSupported},
		{alice, []string{"NumNodes", "3-1"}, pb.CodeNodeCount},
		{alice, []string{"JobName", "a\x00b"}, pb.CodeInvalidSpec},                // in the environment of a prolog it would drain the node
		{alice, []string{"Comment", "\x1b[2J"}, pb.CodeInvalidSpec},               // on the terminal of whoever looks
		{alice, []string{"MailUser", "a\nBcc: all"}, pb.CodeInvalidSpec},          // in a letter
		{alice, []string{"Extra", strings.Repeat("x", 5000)}, pb.CodePathTooLong}, // in memory, and in each commit
	} {
		if p := set(c.by, c.kv...); p.GetCode() != uint32(c.code) {
			t.Errorf("%v: %v, want code %d", c.kv, p, c.code)
		}
	}
	b.start(id, "n1")
	if p := set(alice, "NumNodes", "1"); p.GetCode() != uint32(pb.CodeNotPending) {
		t.Errorf("changing the size of a running job: %v", p)
	}
	if p := set(alice, "TimeLimit", "20"); p.GetCode() != uint32(pb.CodeAccessDenied) {
		t.Errorf("a user lengthened a running job: %v", p)
	}
	if p := set(root, "TimeLimit", "20"); p != nil || b.job(id).EndNs != b.job(id).StartNs+1200e9 {
		t.Errorf("%v, end %d", p, b.job(id).EndNs)
	}
}

func TestTimeLimitByIncrements(t *testing.T) {
	b := newBench(t, nil)
	id := b.submit(&pb.JobSpec{TimeLimitS: pb.Unlimited})
	change := func(key, value string) *pb.Problem {
		return b.do(UpdateJob{Caller: alice, IDs: []string{fmt.Sprint(id)},
			Set: []*pb.KeyValue{{Key: key, Value: value}}}).(Outcomes).List[0].Problem
	}
	for _, c := range []struct {
		key, value string
		want       uint32
		refused    bool
	}{
		{"TimeLimit+", "5", pb.Unlimited, false}, {"TimeLimit-", "5", pb.Unlimited, true}, {"TimeLimit", "10", 600, false},
		{"TimeLimit+", "5", 900, false}, {"TimeLimit-", "10", 300, false}, {"TimeLimit-", "5", 300, true},
	} {
		if p := change(c.key, c.value); (p != nil) != c.refused || b.job(id).TimeLimitS != c.want {
			t.Errorf("%s %s: %v, %d s, want %d", c.key, c.value, p, b.job(id).TimeLimitS, c.want)
		}
	}
}

func TestUpdateNode(t *testing.T) {
	b := newBench(t, nil)
	set := func(kv ...string) any {
		u := UpdateNode{Caller: root, UserName: "root", Nodes: []string{"n1"}}
		for i := 0; i < len(kv); i += 2 {
			u.Set = append(u.Set, &pb.KeyValue{Key: kv[i], Value: kv[i+1]})
		}
		return b.do(u)
	}
	if p, ok := set("State", "DRAIN").(*pb.Problem); !ok || p.Code != uint32(pb.CodeInvalidNodeState) {
		t.Error("a drain without a reason was taken")
	}
	if p, ok := set("State", "SLEEPY").(*pb.Problem); !ok || p.Code != uint32(pb.CodeInvalidNodeState) {
		t.Error("an unknown state was taken")
	}
	id := b.submit(&pb.JobSpec{Requeue: pb.No})
	b.start(id, "n1")
	set("State", "DOWN", "Reason", "broken")
	if b.state(id) != "NODE_FAIL NodeDown" || b.view.Node("n1").Reason != "broken" {
		t.Error(b.state(id), b.view.Node("n1").Reason)
	}
	set("State", "RESUME")
	if b.view.Node("n1").Up() {
		t.Error("the node is used while what it ran may be alive")
	}
	b.do(StepReports{Node: "n1", Steps: endsOf(b.view.Node("n1").Strays)})
	if !b.view.Node("n1").Up() || b.view.Node("n1").Reason != "" {
		t.Error("RESUME did not bring the node back")
	}
	b.trace = nil
	set("State", "DRAIN", "Reason", "a fan")
	set("Reason", "two fans")
	set("State", "RESUME")
	b.expect("NodeChanged n1 drained", "NodeChanged n1 updated", "NodeChanged n1 resumed")
	if p, ok := b.do(UpdateNode{Caller: alice, Nodes: []string{"n1"}}).(*pb.Problem); !ok || p.Code != uint32(pb.CodeAccessDenied) {
		t.Error("a user changed a node")
	}
}

// TestUpdateNodesThatCannotAllBe: nodes that can be changed are, and the others are named; if none can be, nothing is changed.
func TestUpdateNodesThatCannotAllBe(t *testing.T) {
	b := newBench(t, nil)
	update := func(state string, nodes ...string) any {
		return b.do(UpdateNode{Caller: root, UserName: "root", Nodes: nodes,
			Set: []*pb.KeyValue{{Key: "State", Value: state}, {Key: "Reason", Value: "r"}}})
	}
	drained := func(name string) bool { return b.view.Node(name).StateFlags&pb.NodeDrain != 0 }
	left := func(reply any) (names []string) {
		for _, o := range reply.(Outcomes).List {
			names = append(names, o.Id)
		}
		return names
	}
	if got := left(update("DRAIN", "zz", "n1", "yy")); !slices.Equal(got, []string{"zz", "yy"}) || !drained("n1") {
		t.Errorf("left alone %v; n1 drained: %v", got, drained("n1"))
	}
	if got := left(b.do(UpdateNode{Caller: root, Nodes: []string{"n1", "n2"},
		Set: []*pb.KeyValue{{Key: "State", Value: "RESUME"}}})); !slices.Equal(got, []string{"n2"}) || drained("n1") {
		t.Errorf("left alone %v; n1 drained: %v", got, drained("n1"))
	}
	if p, ok := update("DRAIN", "zz", "yy").(*pb.Problem); !ok || p.Code != uint32(pb.CodeInvalidNodeName) {
		t.Error("nodes that do not exist were updated")
	}
	if p, ok := update("SLEEPY", "n1", "n2").(*pb.Problem); !ok || p.Code != uint32(pb.CodeInvalidNodeState) {
		t.Error("a state that does not exist was taken")
	}
	if p, ok := b.do(UpdateNode{Caller: root, Nodes: []string{"n1", "zz"},
		Set: []*pb.KeyValue{{Key: "Weight", Value: "x"}}}).(*pb.Problem); !ok || p.Code != uint32(pb.CodeInvalidSpec) {
		t.Error("a weight that is no number was taken")
	}
}

// TestMailUserDefault: without --mail-user, mail goes to the user's address in MailDomain.
func TestMailUserDefault(t *testing.T) {
	b := newBench(t, func(s *state.Settings) { s.MailDomain = "example.org" })
	id := b.submit(&pb.JobSpec{})
	named := b.submit(&pb.JobSpec{MailUser: "bob"})
	if got, other := b.job(id).Spec.MailUser, b.job(named).Spec.MailUser; got != "u1000@example.org" || other != "bob" {
		t.Errorf("letters go to %q and %q", got, other)
	}
	for value, want := range map[string]string{"carol": "carol", "": "u1000@example.org"} {
		b.do(UpdateJob{Caller: root, IDs: []string{strconv.Itoa(int(id))}, Set: []*pb.KeyValue{{Key: "MailUser", Value: value}}})
		if got := b.job(id).Spec.MailUser; got != want {
			t.Errorf("MailUser=%s: letters go to %q, want %q", value, got, want)
		}
	}
}

// A count of CPUs is divided into tasks without wrapping around: 4294967295 of 256 each were none, and the job one task.
func TestManyCPUsDoNotWrap(t *testing.T) {
	b := newBench(t, nil)
	id := b.submit(&pb.JobSpec{Name: "a", Hold: true, CpusPerTask: 256})
	got := b.update(fmt.Sprint(id), "NumCPUs=4294967295")
	if j := b.job(id); !strings.Contains(got, "More processors") || j.NumCpus != 256 {
		t.Errorf("answered %q, the job has %d CPUs", got, j.NumCpus)
	}
}

// TestAgeFromBegin: a job that may not begin yet gets older from then on, also when that changes; later changes take nothing from its age.
func TestAgeFromBegin(t *testing.T) {
	b := newBench(t, nil)
	hour := int64(3600e9)
	begin := b.now + hour
	id := b.submit(&pb.JobSpec{Name: "a", BeginNs: begin})
	held := b.submit(&pb.JobSpec{Name: "b", BeginNs: begin, Hold: true})
	ages := func(id uint32, want int64) {
		t.Helper()
		if j := b.job(id); j.AccrueNs != want {
			t.Errorf("job %d gets older %v after now, want %v", id, time.Duration(j.AccrueNs-b.now), time.Duration(want-b.now))
		}
	}
	ages(id, begin)
	ages(held, 0)
	b.control("release", fmt.Sprint(held))
	ages(held, begin)
	b.update(fmt.Sprint(id), "StartTime=now+7200")
	ages(id, b.job(id).Spec.BeginNs)
	b.update(fmt.Sprint(id), "ResetAccrueTime=1")
	ages(id, b.job(id).Spec.BeginNs)
	b.update(fmt.Sprint(id), "StartTime=now")
	begun := b.now
	ages(id, begun)
	b.now += hour
	b.update(fmt.Sprint(id), "StartTime=now+7200")
	ages(id, begun)
}

package accounts_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/conf/accounts"
	"github.com/sluice-hpc/sluice/ctld/journal"
	decide "github.com/sluice-hpc/sluice/ctld/reactor/accounts"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"pgregory.net/rapid"
)

// bench is a state that commands of sacctmgr change.
type bench struct {
	t     failer
	cfg   *state.Config
	view  *state.View
	store *journal.Memory
	lines []string // what the log was told
}

type failer interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

func newBench(t failer) *bench {
	cfg := &state.Config{Settings: &state.Settings{Cluster: "c"}, Default: "debug",
		Partitions: []*pb.PartitionRecord{{Name: "debug", State: "UP"}}, PartitionNodes: map[string][]string{"debug": nil},
		Nodes: []*pb.NodeRecord{{Name: "g1", Gres: "gpu:A100:1"}}}
	return &bench{t: t, cfg: cfg, view: state.New(cfg, "c", 1), store: journal.NewMemory()}
}

// as types a line of sacctmgr as somebody: "add user alice account=lab maxjobs=3". Conditions stand before "set".
func (b *bench) as(user, line string) any {
	b.t.Helper()
	return b.do(user, request(b.t, line))
}

func (b *bench) do(user string, r *pb.ChangePolicyRequest) any {
	tx := state.Begin(b.view, 1e9)
	reply := decide.Change{User: user, Operator: user == "root", Request: r}.Handle(tx)
	p, refused := reply.(*pb.Problem)
	busy := !refused && len(reply.(*pb.ChangePolicyReply).Busy) > 0
	if (refused || busy || r.CheckOnly) && len(tx.Events()) > 0 {
		b.t.Errorf("%v: refused (%v), and something happened", r, p)
	}
	for _, e := range tx.Events() {
		b.lines = append(b.lines, fmt.Sprintln(e.Attrs()...))
	}
	rows, err := tx.Rows()
	if err != nil {
		b.t.Fatalf("%v", err)
	}
	if err := b.store.Commit(journal.Batch{Seq: tx.Seq, Rows: rows}); err != nil {
		b.t.Fatalf("%v", err)
	}
	b.view, _ = tx.Freeze()
	if err := b.view.Check(); err != nil {
		b.t.Fatalf("after %v: %v", r, err)
	}
	return reply
}

func request(t failer, line string) *pb.ChangePolicyRequest {
	words := strings.Fields(line)
	verbs := map[string]pb.PolicyVerb{"add": pb.PolicyVerb_POLICY_ADD, "modify": pb.PolicyVerb_POLICY_MODIFY,
		"delete": pb.PolicyVerb_POLICY_DELETE}
	entities := map[string]pb.PolicyEntity{"account": pb.PolicyEntity_POLICY_ACCOUNT, "user": pb.PolicyEntity_POLICY_USER,
		"qos": pb.PolicyEntity_POLICY_QOS, "coordinator": pb.PolicyEntity_POLICY_COORDINATOR}
	ons := map[string]accounts.On{"account": accounts.Account, "user": accounts.User, "qos": accounts.QOS}
	r := &pb.ChangePolicyRequest{Verb: verbs[words[0]], Entity: entities[words[1]]}
	for _, w := range words[2:] {
		key, value, has := strings.Cut(w, "=")
		bare := strings.TrimRight(key, "+-")
		switch {
		case !has:
			r.Names = append(r.Names, strings.Split(w, ",")...)
		case bare == "account":
			r.Accounts = strings.Split(value, ",")
		case bare == "partition":
			r.Partitions = strings.Split(value, ",")
		default:
			def := accounts.Find(ons[words[1]], bare)
			if def == nil {
				t.Fatalf("%s: no setting %s", line, bare)
			}
			s := &pb.PolicySetting{Name: def.Name, Op: key[len(bare):]}
			if def.Numeric() {
				values, err := def.Parse(value)
				if err != nil {
					t.Fatalf("%v", err)
				}
				for _, v := range values {
					s.Values = append(s.Values, &pb.PolicyValue{Name: def.Name, Tres: v.TRES, Value: v.N})
				}
			} else if s.Words = []string{value}; def.Kind == accounts.List {
				s.Words = strings.Split(value, ",")
			}
			r.Set = append(r.Set, s)
		}
	}
	return r
}

// must makes changes as root.
func (b *bench) must(lines ...string) {
	b.t.Helper()
	for _, line := range lines {
		if p, ok := b.as("root", line).(*pb.Problem); ok {
			b.t.Fatalf("%s: %v", line, p)
		}
	}
}

func (b *bench) refused(user, line, words string) {
	b.t.Helper()
	if p, ok := b.as(user, line).(*pb.Problem); !ok || !strings.Contains(p.Error(), words) {
		b.t.Errorf("%s: %s: %v, want %q", user, line, p, words)
	}
}

// lab has two groups below a lab, users in them, and a QOS.
func lab(t failer) *bench {
	b := newBench(t)
	b.must("add account lab grpjobs=10", "add account vision,nlp parent=lab maxjobs=4", "add qos high priority=10 maxjobspu=2",
		"add user alice account=vision,nlp", "add user bob account=nlp partition=debug fairshare=3", "add user carol account=lab",
		"add coordinator alice account=vision", "add user oscar account=lab adminlevel=operator")
	return b
}

func TestWhoMayChange(t *testing.T) {
	b := lab(t)
	for _, tt := range []struct {
		user, line string
		may        bool
	}{
		{"carol", "add account mine", false},
		{"carol", "modify user carol maxjobs=9", false},
		{"carol", "add user dave account=vision", false},
		{"nosuch", "add account mine", false},
		{"alice", "add user dave account=vision", true},
		{"alice", "modify user dave account=vision maxjobs=2", true},
		{"alice", "add user dave account=nlp", false},
		{"alice", "add account kid parent=vision", true},
		{"alice", "modify account kid grpjobs=2", true},
		{"alice", "modify account vision grpjobs=100", false},
		{"alice", "modify account kid parent=lab", false},
		{"alice", "modify user dave account=vision qos=high", false}, // vision does not have it
		{"alice", "modify user alice defaultaccount=nlp", true},
		{"alice", "modify user dave adminlevel=operator", false},
		{"alice", "add coordinator dave account=kid", true},
		{"dave", "add user erin account=kid", true},
		{"alice", "delete account kid", true},
		{"alice", "delete user bob", false},
		{"oscar", "add account more", true},
		{"oscar", "modify account lab qos+=high", true},
		{"oscar", "modify user carol adminlevel=admin", false},
		{"oscar", "add qos mine", false},
		{"oscar", "delete account more", true},
		{"root", "modify user carol adminlevel=admin", true},
		{"carol", "add qos mine", true},
	} {
		p, refused := b.as(tt.user, tt.line).(*pb.Problem)
		if refused == tt.may || refused && pb.Code(p.Code) != pb.CodeAccessDenied {
			t.Errorf("%s: %s: %v, allowed %v", tt.user, tt.line, p, tt.may)
		}
	}
}

func TestRefusals(t *testing.T) {
	b := lab(t)
	for line, words := range map[string]string{
		"add account x parent=nosuch":                  "Parent account 'nosuch' doesn't exist",
		"add account a/b":                              `it has the character '/'`,
		"add account a\x01b":                           `it has the character '\x01'`,
		"add account -x":                               "it begins with -",
		"add account " + strings.Repeat("x", 201):      "longer than 200",
		"add user dave account=nosuch":                 "This account 'nosuch' doesn't exist",
		"add user dave account=lab partition=nosuch":   "no partition 'nosuch'",
		"add user dave account=lab defaultaccount=nlp": "aren't associated with new default account 'nlp'",
		"modify account lab parent=vision":             "vision is below lab",
		"modify account vision parent=nosuch":          "Parent account 'nosuch' doesn't exist",
		"modify account root parent=lab":               "root account has no parent",
		"modify user bob defaultaccount=lab":           "aren't associated",
		"modify user bob qos=nosuch":                   "You gave a bad qos 'nosuch'. Valid QOS's are normal,high",
		"modify user bob qos-=normal":                  "needs a QOS",
		"modify user bob defaultqos=high":              "don't have access to their default qos",
		"modify user root adminlevel=none":             "level of root",
		"modify qos high preemptmode=nosuch":           "Bad Preempt Mode",
		"modify qos high description=a\x1b[1m":         "control",
		"delete account lab":                           "Accounts below: nlp vision",
		"delete account root":                          "not allowed to remove the root account",
		"delete user root":                             "root cannot be removed",
		"delete qos normal":                            "cannot be deleted",
		"modify account lab limithours=Mon":            "LimitHours: Mon has no hours",
		"add qos x limithours=8-20":                    `"8-20" are not days`,
		"modify account lab defaultpartition=Debug":    "There is no partition 'Debug'",
		"modify account lab defaultgputype=a100":       "No node has GPUs of type 'a100'",
		"delete account":                               "No conditions",
		"delete user":                                  "No conditions",
		"delete qos":                                   "No conditions",
		"add coordinator nosuch account=lab":           "non-existent user 'nosuch'",
		"add coordinator bob account=nosuch":           "non-existent account 'nosuch'",
	} {
		b.refused("root", line, words)
	}
	// Settings that sacctmgr never sends.
	for _, s := range []*pb.PolicySetting{
		{Name: "NoSuch", Words: []string{"x"}}, {Name: "MaxJobs"}, {Name: "Description"}, {Name: "MaxJobs", Op: "+",
			Values: []*pb.PolicyValue{{Name: "MaxJobs", Value: 1}}},
		{Name: "MaxJobs", Values: []*pb.PolicyValue{{Name: "GrpJobs", Value: 1}}},
		{Name: "MaxJobs", Values: []*pb.PolicyValue{{Name: "MaxJobs", Value: 1 << 32}}},
		{Name: "MaxJobs", Values: []*pb.PolicyValue{{Name: "MaxJobs", Tres: "cpu", Value: 1}}},
		{Name: "GrpTRES", Values: []*pb.PolicyValue{{Name: "GrpTRES", Value: 1}}},
		{Name: "GrpTRES", Values: []*pb.PolicyValue{{Name: "GrpTRES", Tres: "nosuch", Value: 1}}},
		{Name: "GrpTRES", Values: []*pb.PolicyValue{{Name: "GrpTRES", Tres: "cpu", Value: 1<<64 - 2}}},
		{Name: "QOS", Op: "*", Words: []string{"normal"}}, {Name: "Flags", Words: []string{"DenyOnLimit"}},
	} {
		r := &pb.ChangePolicyRequest{Verb: pb.PolicyVerb_POLICY_MODIFY, Names: []string{"lab"}, Set: []*pb.PolicySetting{s}}
		if p, ok := b.do("root", r).(*pb.Problem); !ok {
			t.Errorf("%v: %v", s, p)
		}
	}
}

// TestDeletingWhatIsInUse: nothing goes while a job is pending or running in it; afterwards it does, and what depends on it.
func TestDeletingWhatIsInUse(t *testing.T) {
	b := lab(t)
	b.must("modify account nlp qos=high,normal defaultqos=high")
	submit := func(state_ pb.JobState) {
		tx := state.Begin(b.view, 1e9)
		tx.Emit(state.JobSubmitted{Job: &pb.JobRecord{Id: 1, State: state_, Partition: "debug",
			Spec: &pb.JobSpec{User: "bob", Uid: 1001, Account: "nlp", Qos: "high"}}})
		b.view, _ = tx.Freeze()
	}
	submit(pb.JobState_JOB_PENDING)
	for _, line := range []string{"delete account nlp", "delete user bob", "delete user bob account=nlp", "delete qos high"} {
		r, ok := b.as("root", line).(*pb.ChangePolicyReply)
		if !ok || len(r.Busy) != 1 || r.Busy[0].Job != "1" || r.Busy[0].Account != "nlp" {
			t.Errorf("%s: %v", line, r)
		}
	}
	b.must("delete user alice account=vision") // of somebody else
	submit(pb.JobState_JOB_CANCELLED)
	b.must("delete qos high", "delete account nlp")
	p := b.view.Policy()
	if p.User("bob") != nil || p.User("alice") != nil || p.User("carol") == nil || p.Account("nlp") != nil ||
		len(p.Account("vision").Coordinators) > 0 {
		t.Error("what was left:", p.Users(), p.Accounts())
	}
}

// TestChangesAreWhole: a change with one invalid part changes nothing, and neither does a change that is only checked.
func TestChangesAreWhole(t *testing.T) {
	b := lab(t)
	before := b.view.Policy()
	b.refused("root", "add user dave,erin account=lab,nosuch", "nosuch")
	b.refused("alice", "add user dave account=vision,nlp", "coordinators")
	b.refused("root", "modify user alice maxjobs=7 defaultaccount=lab", "aren't associated")
	r := request(t, "add account x,y grpjobs=3")
	r.CheckOnly = true
	if got := b.do("root", r).(*pb.ChangePolicyReply); !slices.Equal(got.Names, []string{"x", "y"}) || len(got.Assocs) != 2 {
		t.Errorf("%v", got)
	}
	if b.view.Policy() != before {
		t.Error("something was changed")
	}
}

func TestTheLogSaysWhoChangedWhat(t *testing.T) {
	b := newBench(t)
	b.must("add account lab grpjobs=3 grptres=gres/gpu=2", "modify account lab grpjobs=-1")
	want := []string{"by root verb add entity account names lab associations lab set GrpJobs=3 GrpTRES=gres/gpu=2",
		"by root verb modify entity account associations lab set GrpJobs=none"}
	for i, line := range b.lines {
		if got := strings.Join(strings.Fields(line), " "); got != want[i] {
			t.Errorf("%q, want %q", got, want[i])
		}
	}
}

// anything makes some changes.
func (b *bench) anything(t *rapid.T) {
	name := rapid.SampledFrom([]string{"a", "b", "c", "d", "root"})
	names := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfNDistinct(name, 1, 3, rapid.ID).Draw(t, "names"), ",")
	})
	qos := rapid.SampledFrom([]string{"q", "r", "normal", "q,normal", "q,r"})
	hours := rapid.SampledFrom([]string{"", "8:00-20:00", "Sat,Mon,20:00-08:00"})
	for range rapid.IntRange(1, 40).Draw(t, "changes") {
		line := rapid.SampledFrom([]func() string{
			func() string { return "add account " + names.Draw(t, "n") + " parent=" + name.Draw(t, "p") },
			func() string { return "add user u" + name.Draw(t, "u") + " account=" + names.Draw(t, "a") },
			func() string {
				return "add user u" + name.Draw(t, "u") + " partition=debug account=" + names.Draw(t, "a")
			},
			func() string { return "add qos " + rapid.SampledFrom([]string{"q", "r"}).Draw(t, "q") },
			func() string { return "add coordinator u" + name.Draw(t, "u") + " account=" + name.Draw(t, "a") },
			func() string { return "modify account " + name.Draw(t, "n") + " parent=" + name.Draw(t, "p") },
			func() string { return "modify account " + names.Draw(t, "n") + " qos=" + qos.Draw(t, "q") },
			func() string {
				return "modify account " + names.Draw(t, "n") + " qos-=" + qos.Draw(t, "q") + " defaultqos=q"
			},
			func() string { return "modify user u" + name.Draw(t, "u") + " defaultaccount=" + name.Draw(t, "a") },
			func() string {
				return "modify user u" + name.Draw(t, "u") + " fairshare=parent adminlevel=operator maxjobs=3"
			},
			func() string {
				return "modify account " + names.Draw(t, "n") + " fairshare=1 grptres=cpu=4,mem=10 description=it's organization=x"
			},
			func() string { return "modify qos q preempt+=" + qos.Draw(t, "q") },
			func() string { return "modify qos q limithours=" + hours.Draw(t, "h") },
			func() string { return "modify account " + names.Draw(t, "n") + " limithours=" + hours.Draw(t, "h") },
			func() string { return "modify user u" + name.Draw(t, "u") + " limithours=" + hours.Draw(t, "h") },
			func() string { return "modify user u" + name.Draw(t, "u") + " defaulttime=30 defpartition=debug" },
			func() string { return "modify account " + names.Draw(t, "n") + " deftime=-1 defaultgputype=A100" },
			func() string { return "delete account " + names.Draw(t, "n") },
			func() string { return "delete user u" + name.Draw(t, "u") + " account=" + names.Draw(t, "a") },
			func() string { return "delete user u" + name.Draw(t, "u") },
			func() string { return "delete qos " + qos.Draw(t, "q") },
		}).Draw(t, "line")()
		b.as("root", line)
	}
}

// TestAnyChanges: after any sequence of changes the records are consistent (do checks), and the journal has the same records.
func TestAnyChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBench(t)
		b.anything(t)
		loaded, err := state.Load(b.cfg, b.store, "c", 1)
		if err != nil {
			t.Fatal(err)
		}
		got, want := loaded.Policy(), b.view.Policy()
		for _, both := range [][2]any{{got.Accounts(), want.Accounts()}, {got.Users(), want.Users()}, {got.Assocs(), want.Assocs()},
			{got.Qoses(), want.Qoses()}} {
			if fmt.Sprint(both[0]) != fmt.Sprint(both[1]) {
				t.Fatalf("loaded %v, want %v", both[0], both[1])
			}
		}
	})
}

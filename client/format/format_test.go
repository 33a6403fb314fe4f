package format

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/sluice-hpc/sluice/client/msg"
)

func testContext() *Context {
	return &Context{Now: time.Date(2026, 11, 20, 16, 20, 30, 0, time.UTC), Loc: time.UTC, BitstrLen: DefaultBitstrLen, Cluster: "lab"}
}

func row(t testing.TB, spec string, j Job) string {
	layout, unknown := Jobs().ParseLetters(spec)
	if len(unknown) > 0 {
		t.Fatalf("%s: unknown %q", spec, unknown)
	}
	return string(layout.AppendRow(nil, testContext(), j))
}

func named(name string) Job {
	return Job{JobRecord: &msg.JobRecord{Id: 7, Spec: &msg.JobSpec{Name: name}}}
}

func TestEscape(t *testing.T) {
	for in, want := range map[string]string{
		"plain name":        "plain name",
		"back\\slash":       "back\\slash",
		"naïve-ß-日本":        "naïve-ß-日本",
		"a\nb\tc\rd":        `a\nb\tc\rd`,
		"\x1b[31mred\x7f":   `\x1b[31mred\x7f`,
		"\u202eevil\u2066x": `\u202eevil\u2066x`,
		"zero\u200bwidth":   `zero\u200bwidth`,
		"c1\u009bx":         `c1\u009bx`,
		"bad\xff\xc3":       `bad\xff\xc3`,
		"line\u2028sep":     `line\u2028sep`,
	} {
		if got := Escape(in); got != want {
			t.Errorf("Escape(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestWidths(t *testing.T) {
	for _, c := range []struct{ spec, name, want string }{
		{"[%5j]", "abc", "[abc  ]"},
		{"[%.5j]", "abc", "[  abc]"},
		{"[%3j]", "abcdef", "[abc]"},
		{"[%.3j]", "abcdef", "[abc]"},
		{"[%0j]", "abc", "[abc]"},
		{"[%j]", "abc", "[abc]"},
		{"[%4j]", "日本", "[日 ]"}, // bytes count, no rune is cut in two
		{"[%.4j]", "日本", "[ 日]"},
		{"[%6j]", "日本", "[日本]"},
		{"[%3j]", "a\nb", `[a\n]`},
	} {
		if got := row(t, c.spec, named(c.name)); got != c.want {
			t.Errorf("%s of %q = %q, want %q", c.spec, c.name, got, c.want)
		}
	}
	long := named("x")
	long.TimeLimitS = 15 * 86400
	if got := row(t, "[%.9l][%9l]", long); got != "[15-00:00:00][15-00:00:]" {
		t.Errorf("durations aligned to the right are not cut: %q", got)
	}
}

// Whatever users call their jobs, a row has as many columns as its format, and no byte of it moves a terminal's cursor.
func TestHostileNames(t *testing.T) {
	table := Jobs()
	rapid.Check(t, func(t *rapid.T) {
		hostile := rapid.OneOf(rapid.String(), rapid.StringOfN(rapid.RuneFrom([]rune("|\x1f\n\x1b[\u202e\x00 =%\t\u0085é日")), 0, 40, -1),
			rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }))
		s := hostile.Draw(t, "text")
		r := &msg.JobRecord{Id: 1, NodeList: s, Reason: s, Partition: s, BatchHost: s, SystemComment: s, ReqTres: s, ReasonDetail: s,
			ArrayJobId: rapid.Uint32().Draw(t, "array"),
			ArrayTasks: s, State: msg.JobState(rapid.IntRange(-1, 13).Draw(t, "state")), StateFlags: rapid.Uint32().Draw(t, "flags"),
			StartNs: rapid.Int64().Draw(t, "start"), EndNs: rapid.Int64().Draw(t, "end"), TimeLimitS: rapid.Uint32().Draw(t, "limit"),
			Spec: &msg.JobSpec{Name: s, User: s, Group: s, Account: s, Comment: s, Command: s, WorkDir: s, StdOut: s, StdErr: s,
				Features: s, TresPerNode: s, Args: []string{s}, Licenses: s, Dependency: s}}
		fields := rapid.SliceOfN(rapid.IntRange(0, len(table.Fields)-1), 1, 8).Draw(t, "fields")
		var layout Layout[Job]
		width := 0
		for _, i := range fields {
			w := rapid.IntRange(0, 30).Draw(t, "width")
			layout = append(layout, Column[Job]{Field: &table.Fields[i], Width: w, Right: rapid.Bool().Draw(t, "right"), Suffix: "\x1f"})
			width += w + 1
		}
		got := layout.AppendRow(nil, testContext(), Job{JobRecord: r})
		if n := bytes.Count(got, []byte("\x1f")); n != len(fields) {
			t.Fatalf("%d columns, want %d: %q", n, len(fields), got)
		}
		checkClean(t, strings.ReplaceAll(string(got), "\x1f", ""))
		for _, text := range []string{string(AppendJob(nil, testContext(), r, true, 1))} {
			checkClean(t, strings.TrimSuffix(text, "\n"))
		}
		multi := string(AppendJob(nil, testContext(), r, false, 1))
		for _, line := range strings.Split(multi, "\n") {
			checkClean(t, line)
		}
		if strings.Count(multi, "\n   JobState=") != 1 {
			t.Fatalf("a text from the record makes a line of its own:\n%s", multi)
		}
	})
}

func checkClean(t *rapid.T, s string) {
	if !utf8.ValidString(s) {
		t.Fatalf("broken UTF-8: %q", s)
	}
	for _, r := range s {
		if Escape(string(r)) != string(r) {
			t.Fatalf("%U reaches the terminal: %q", r, s)
		}
	}
}

// A left-aligned column is exactly as wide as asked.
func TestColumnWidth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "name")
		w := rapid.IntRange(1, 40).Draw(t, "width")
		layout := Layout[Job]{{Field: Jobs().ByLetter('j'), Width: w, Right: rapid.Bool().Draw(t, "right")}}
		if got := layout.AppendRow(nil, testContext(), named(s)); len(got) != w {
			t.Fatalf("%q is %d bytes wide, want %d", got, len(got), w)
		}
	})
}

func TestReasonList(t *testing.T) {
	r := func(state msg.JobState, flags uint32, reason, nodes string) string {
		return row(t, "%R", Job{JobRecord: &msg.JobRecord{State: state, StateFlags: flags, Reason: reason, NodeList: nodes,
			Spec: &msg.JobSpec{}}})
	}
	for got, want := range map[string]string{
		r(msg.JobState_JOB_PENDING, 0, "", ""):                                      "(None)",
		r(msg.JobState_JOB_PENDING, 0, "Resources", ""):                             "(Resources)",
		r(msg.JobState_JOB_RUNNING, 0, "None", "n[1-2]"):                            "n[1-2]",
		r(msg.JobState_JOB_TIMEOUT, 0, "TimeLimit", "n3"):                           "(TimeLimit)",
		r(msg.JobState_JOB_TIMEOUT, msg.JobCompleting, "TimeLimit", "n4"):           "n4",
		r(msg.JobState_JOB_CANCELLED, 0, "None", "n5"):                              "n5",
		r(msg.JobState_JOB_OUT_OF_MEMORY, 0, "OutOfMemory", "n6"):                   "(OutOfMemory)",
		r(msg.JobState_JOB_NODE_FAIL, 0, "NodeDown", "n7"):                          "n7",
		r(msg.JobState_JOB_COMPLETED, msg.JobCompleting|msg.JobSignaling, "", "n8"): "n8",
	} {
		if got != want {
			t.Errorf("%%R = %q, want %q", got, want)
		}
	}
}

func TestNodeStates(t *testing.T) {
	idle, down, unknown := msg.NodeState_NODE_IDLE, msg.NodeState_NODE_DOWN, msg.NodeState_NODE_UNKNOWN
	for _, c := range []struct {
		state                   msg.NodeState
		flags                   uint32
		alloc                   uint32
		compact, long, complete string
	}{
		{idle, 0, 0, "idle", "idle", "IDLE"},
		{idle, 0, 2, "mix", "mixed", "MIXED"},
		{idle, 0, 4, "alloc", "allocated", "ALLOCATED"},
		{idle, msg.NodeCompleting, 4, "alloc+", "allocated+", "ALLOCATED+COMPLETING"},
		{idle, msg.NodeCompleting, 0, "comp", "completing", "IDLE+COMPLETING"},
		{idle, msg.NodeNoRespond, 0, "idle*", "idle*", "IDLE+NOT_RESPONDING"},
		{down, msg.NodeNoRespond, 0, "down*", "down*", "DOWN+NOT_RESPONDING"},
		{unknown, msg.NodeNoRespond, 0, "unk*", "unknown*", "UNKNOWN+NOT_RESPONDING"},
		{idle, msg.NodeDrain, 0, "drain", "drained", "IDLE+DRAIN"},
		{idle, msg.NodeDrain, 1, "drng", "draining", "MIXED+DRAIN"},
		{down, msg.NodeDrain | msg.NodeNoRespond, 0, "drain*", "drained*", "DOWN+DRAIN+NOT_RESPONDING"},
		{idle, msg.NodeDrain | msg.NodeInvalidReg, 0, "inval", "inval", "IDLE+DRAIN+INVALID_REG"},
		{idle, msg.NodeFail, 0, "fail", "fail", "IDLE+FAIL"},
		{idle, msg.NodeFail, 4, "failg", "failing", "ALLOCATED+FAIL"},
		{idle, msg.NodeMaint, 0, "maint", "maint", "IDLE+MAINTENANCE"},
		{idle, msg.NodeMaint, 1, "mix$", "mixed$", "MIXED+MAINTENANCE"},
		{down, msg.NodeMaint, 0, "down$", "down$", "DOWN+MAINTENANCE"},
		{idle, msg.NodeReserved, 0, "resv", "reserved", "IDLE+RESERVED"},
		{idle, msg.NodePlanned, 0, "plnd", "planned", "IDLE+PLANNED"},
		{idle, msg.NodePlanned, 1, "mix-", "mixed-", "MIXED+PLANNED"},
		{idle, msg.NodePoweredDown, 0, "idle~", "idle~", "IDLE+POWERED_DOWN"},
		{idle, msg.NodePoweringUp, 0, "idle#", "idle#", "IDLE+POWERING_UP"},
		{idle, msg.NodePoweringDown, 0, "idle%", "idle%", "IDLE+POWERING_DOWN"},
		{idle, msg.NodePowerDownPending, 0, "idle!", "idle!", "IDLE+POWER_DOWN"},
		{idle, msg.NodeRebootRequested, 4, "alloc@", "allocated@", "ALLOCATED+REBOOT_REQUESTED"},
		{idle, msg.NodeRebootIssued, 0, "boot^", "reboot^", "IDLE+REBOOT_ISSUED"},
	} {
		n := &msg.NodeRecord{State: c.state, StateFlags: c.flags, Cpus: 4, AllocCpus: c.alloc}
		if got := nodeState(n, 1); got != c.compact {
			t.Errorf("%s: compact %q, want %q", c.complete, got, c.compact)
		}
		if got := nodeState(n, 0); got != c.long {
			t.Errorf("%s: long %q, want %q", c.complete, got, c.long)
		}
		if got := NodeStateComplete(n); got != c.complete {
			t.Errorf("complete %q, want %q", got, c.complete)
		}
	}
}

// TestNextState: what a node becomes after its reboot has a line of its own behind its state, as Slurm has it.
func TestNextState(t *testing.T) {
	n := &msg.NodeRecord{Name: "n1", StateFlags: msg.NodeRebootRequested, RebootNext: "RESUME"}
	if got := string(AppendNode(nil, &Context{}, n, false, 0)); !strings.Contains(got, "MCS_label=N/A\n   NextState=RESUME\n   BootTime=") {
		t.Errorf("%s", got)
	}
}

func TestNodeFilters(t *testing.T) {
	n := func(flags, alloc uint32) *msg.NodeRecord {
		return &msg.NodeRecord{State: msg.NodeState_NODE_IDLE, StateFlags: flags, Cpus: 4, AllocCpus: alloc}
	}
	for _, c := range []struct {
		spec string
		node *msg.NodeRecord
		want bool
	}{
		{"idle", n(0, 0), true}, {"idle", n(0, 1), false}, {"IDLE,mix", n(0, 1), true}, {"all", n(msg.NodeDrain, 0), true},
		{"idle&drain", n(msg.NodeDrain, 0), true}, {"idle&drain", n(0, 0), false}, {"idle+drain", n(msg.NodeDrain, 0), true},
		{"~drain", n(0, 0), true}, {"!drain", n(msg.NodeDrain, 0), false}, {"idle&~drain", n(msg.NodeDrain, 0), false},
		{"drained", n(msg.NodeDrain, 1), false}, {"draining", n(msg.NodeDrain, 1), true}, {"no_respond", n(msg.NodeNoRespond, 0), true},
	} {
		f, bad := ParseNodeStates(c.spec)
		if bad != "" {
			t.Errorf("%s: %q is refused", c.spec, bad)
		}
		if got := f.Match(c.node); got != c.want {
			t.Errorf("%s matches %s: %v, want %v", c.spec, NodeStateComplete(c.node), got, c.want)
		}
	}
	if _, bad := ParseNodeStates("idle,bogus"); bad != "bogus" {
		t.Errorf("bad word %q, want bogus", bad)
	}
}

func TestTimeFormats(t *testing.T) {
	c := testContext()
	at := func(s string) int64 {
		m, err := time.Parse("2006-01-02 15:04:05", s)
		if err != nil {
			t.Fatal(err)
		}
		return m.UnixNano()
	}
	for _, x := range []struct{ format, at, want string }{
		{"", "2026-11-20 15:42:04", "2026-11-20T15:42:04"},
		{"standard", "2026-11-20 15:42:04", "2026-11-20T15:42:04"},
		{"relative", "2026-11-20 15:42:04", "15:42:04"},
		{"relative", "2026-11-21 15:42:04", "Tomorr 15:42"},
		{"relative", "2026-11-19 15:42:04", "Ystday 15:42"},
		{"relative", "2026-11-24 15:42:04", "Tue 15:42"},
		{"relative", "2026-04-25 15:42:04", "25 Apr 15:42"},
		{"relative", "2025-06-06 15:42:04", "6 Jun 2025"},
		{"%a %T", "2026-11-20 15:42:04", "Fri 15:42:04"},
		{"%s %% %Q %", "1970-01-01 00:00:01", "1 % %Q %"},
		{"%Y%m%d %u %w %j", "2026-11-22 00:00:00", "20261122 7 0 326"},
	} {
		c.TimeFormat = x.format
		if got := string(c.AppendTime(nil, at(x.at), "N/A")); got != x.want {
			t.Errorf("%q of %s = %q, want %q", x.format, x.at, got, x.want)
		}
	}
}

// TestCutTasks has what a 22.05 answers with these values of SLURM_BITSTR_LEN.
func TestCutTasks(t *testing.T) {
	for _, c := range []struct {
		tasks string
		limit int
		want  string
	}{
		{"1,3-4,7,9-11", 0, "1,3-4,7,9-11"}, {"1,3-4,7,9-11", 1, ""}, {"1,3-4,7,9-11", 2, "."}, {"1,3-4,7,9-11", 4, "..."},
		{"1,3-4,7,9-11", 5, "1..."}, {"1,3-4,7,9-11", 9, "1,3-4..."}, {"1,3-4,7,9-11", 12, "1,3-4,7,..."},
		{"1,3-4,7,9-11", 14, "1,3-4,7,9-..."}, {"1,3-4,7,9-11", 15, "1,3-4,7,9-11"},
		{"1-5", 3, ".."}, {"1-5", 4, "..."}, {"1-5", 6, "1-5"}, {"1-5%2", 1, "%2"}, {"1-5%2", 5, "1...%2"}, {"1-5%2", 6, "1-5%2"},
		{"1,3,5,7,9%3", 8, "1,3,...%3"}, {"1,3,5,7,9%3", 11, "1,3,5,7...%3"}, {"1,3,5,7,9%3", 12, "1,3,5,7,9%3"}, {"", 5, ""},
	} {
		if got := CutTasks(c.tasks, c.limit); got != c.want {
			t.Errorf("CutTasks(%q, %d) = %q, want %q", c.tasks, c.limit, got, c.want)
		}
	}
}

func TestDiagnosis(t *testing.T) {
	r := &msg.JobRecord{Id: 7, Reason: "Resources", ReasonDetail: "needs 8 CPUs\non one node", Spec: &msg.JobSpec{Name: "x"}}
	if got := string(AppendJob(nil, testContext(), r, false, 0)); !strings.HasSuffix(got,
		"\n   Diagnosis=needs 8 CPUs\\non one node\n   \n\n") {
		t.Errorf("the diagnosis is not the last key:\n%s", got)
	}
	if got := string(AppendJob(nil, testContext(), r, true, 0)); !strings.HasSuffix(got, " Diagnosis=needs_8_CPUs\\non_one_node \n") ||
		strings.Count(got, "\n") != 1 {
		t.Errorf("one line: %q", got)
	}
}

func TestEveryNameOnce(t *testing.T) {
	seen := map[string]string{}
	for _, f := range Jobs().Fields {
		for _, n := range f.Names {
			if n != strings.ToLower(n) || seen[n] != "" {
				t.Errorf("field name %q stands twice or is not in lower case", n)
			}
			seen[n] = f.Header
		}
	}
	letters := map[byte]bool{}
	for _, f := range Nodes().Fields {
		if f.Letter != 0 && letters[f.Letter] {
			t.Errorf("letter %c stands twice", f.Letter)
		}
		letters[f.Letter] = true
	}
}

func FuzzParseLetters(f *testing.F) {
	for _, s := range []string{"%.18i %.9P", "%", "%5", "%%x", "%i%%x %5.3j", "plain", "%all", "%.99999999999999999999i", "%é",
		"a\x1f%j\x00", "%9#P"} {
		f.Add(s)
	}
	j := named("na\nme")
	f.Fuzz(func(t *testing.T, spec string) {
		layout, _ := Jobs().ParseLetters(spec)
		if len(layout) < 100 {
			_ = layout.AppendRow(layout.AppendHeader(nil), testContext(), j)
		}
		nodes, _ := Nodes().ParseLetters(spec)
		if len(nodes) < 100 {
			_ = nodes.AppendRow(nil, testContext(), &NodeGroup{Partition: &msg.PartitionRecord{}})
		}
	})
}

func FuzzParseNames(f *testing.F) {
	for _, s := range []string{"jobid:10,name:.12,state:5,partition:", "JobID:\x1f,Name:|", "bogus", "all", ",,", "jobid:.", "jobid:-10",
		"nodelist:99999999999999"} {
		f.Add(s)
	}
	j := named("x")
	f.Fuzz(func(t *testing.T, spec string) {
		layout, _ := Jobs().ParseNames(spec)
		if len(layout) < 100 {
			_ = layout.AppendRow(nil, testContext(), j)
		}
		if nodes, _ := Nodes().ParseNames(spec); len(nodes) < 100 {
			_ = nodes.AppendRow(nil, testContext(), &NodeGroup{Partition: &msg.PartitionRecord{}})
		}
	})
}

func FuzzSmallGrammars(f *testing.F) {
	for _, s := range []string{"P,t,-p", "#P,-t", "", "@", "+i,-", "idle&~drain,mix", "1-5:2,8%3", "0-4294967295", "5-1", "1-"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		order, _ := Jobs().ParseSort(s)
		order.sort(testContext(), []Job{named("b"), named("a")})
		_, _ = ParseNodeStates(s)
		n := 0
		ExpandTasks(s, func(uint32) bool { n++; return n < 1000 })
		if got := CutTasks(s, 20); len(got) > len(s)+4 {
			t.Errorf("CutTasks(%q) = %q", s, got)
		}
	})
}

func manyJobs(n int) []Job {
	jobs := make([]Job, n)
	for i := range jobs {
		jobs[i] = Job{JobRecord: &msg.JobRecord{Id: uint32(i + 1), State: msg.JobState(i % 2), Reason: "Priority", Partition: "debug",
			Priority: uint32(n - i), NumNodes: 1,
			StartNs: 1e18, NodeList: "n1", TimeLimitS: 3600, Spec: &msg.JobSpec{Name: fmt.Sprintf("job%d", i), User: "alice", Uid: 1000,
				Partition: "debug"}}}
	}
	return jobs
}

// BenchmarkDefaultView formats and sorts 10,000 rows as plain squeue does.
func BenchmarkDefaultView(b *testing.B) {
	jobs := manyJobs(10000)
	layout, _ := Jobs().ParseLetters("%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R")
	order, _ := Jobs().ParseSort("P,t,-p")
	c := testContext()
	var out []byte
	for b.Loop() {
		order.sort(c, jobs)
		out = out[:0]
		for _, j := range jobs {
			out = append(layout.AppendRow(out, c, j), '\n')
		}
	}
	b.SetBytes(int64(len(out)))
}

// TestReservationOfParts: of a reservation of cores, the cores of each node are shown, and PURGE_COMP with its time.
func TestReservationOfParts(t *testing.T) {
	c := &Context{Now: time.Unix(1000, 0), Loc: time.UTC}
	r := &msg.ReservationRecord{Name: "r", StartNs: 900e9, EndNs: 4500e9, Nodes: "n[1-2]", NodeCount: 2, CoreCount: 3,
		Flags: []string{"SPEC_NODES", "PURGE_COMP"}, PurgeCompS: 600, Tres: "cpu=3,gres/gpu=2",
		Users: "root", Parts: []*msg.NodeAlloc{{Node: "n1", CpuIds: "0-1",
			Devices: []*msg.GresDevice{{Name: "gpu", Index: 0}, {Name: "gpu", Index: 3}}}, {Node: "n2", CpuIds: "3"}}}
	want := `ReservationName=r StartTime=1970-01-01T00:15:00 EndTime=1970-01-01T01:15:00 Duration=01:00:00
   Nodes=n[1-2] NodeCnt=2 CoreCnt=3 Features=(null) PartitionName=(null) Flags=SPEC_NODES,PURGE_COMP=00:10:00
     NodeName=n1 CoreIDs=0-1 GRES=gpu:0,3
     NodeName=n2 CoreIDs=3
   TRES=cpu=3,gres/gpu=2
   Users=root Groups=(null) Accounts=(null) Licenses=(null) State=ACTIVE BurstBuffer=(null) Watts=n/a
   MaxStartDelay=(null)

`
	if got := string(AppendReservation(nil, c, r, false)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// sort orders rows; equal rows stay as they came.
func (o Order[T]) sort(c *Context, rows []T) {
	if len(o) == 0 || len(rows) < 2 {
		return
	}
	type keyed struct {
		row T
		key []byte
	}
	all := make([]keyed, len(rows))
	for i, row := range rows {
		all[i] = keyed{row, o.AppendKey(nil, c, row)}
	}
	slices.SortStableFunc(all, func(a, b keyed) int { return bytes.Compare(a.key, b.key) })
	for i := range all {
		rows[i] = all[i].row
	}
}

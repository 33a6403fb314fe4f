package cli

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/scontrol"
	"github.com/sluice-hpc/sluice/client/sinfo"
	"github.com/sluice-hpc/sluice/client/squeue"
)

func (s *scene) mustRun(t *testing.T, words ...string) string {
	t.Helper()
	rc, stdout, stderr := s.run(words, nil)
	if rc != 0 || stderr != "" {
		t.Fatalf("%v: exit code %d, stderr %q", words, rc, stderr)
	}
	return stdout
}

// Within a partition: by state, then the highest priority first, then the lowest id.
func TestDefaultOrder(t *testing.T) {
	s := readScene(t, "facts.txt")
	got := strings.Fields(s.mustRun(t, "squeue", "-h", "-p", "debug,gpu", "-o", "%P/%t/%Q/%A"))
	want := "debug/PD/43/23 debug/PD/11/28 debug/PD/9/14 debug/PD/9/16 debug/PD/9/17 debug/PD/9/20 debug/PD/0/13 debug/PD/0/15 " +
		"debug/PD/0/19 " +
		"debug/R/29/9 debug/R/11/8 debug/R/9/30 debug/S/0/25 debug,long/PD/9/18 debug,long/PD/9/26 gpu/PD/22/11 gpu/PD/9/12 gpu/R/11/10"
	if strings.Join(got, " ") != want {
		t.Errorf("order\n%s\nwant\n%s", strings.Join(got, " "), want)
	}
}

// sinfo's own order is settled: partitions as in slurm.conf, then the states that need attention first.
func TestSinfoOrder(t *testing.T) {
	s := readScene(t, "facts.txt")
	_, all := readRecorded(t, "sinfo.txt")
	compared := 0
	for _, r := range all {
		switch strings.Join(r.argv, " ") {
		case "sinfo", "sinfo -s", "sinfo -l", "sinfo -p gpu", "sinfo -S -t,P -o %P %D %t":
			if len(r.env) > 0 {
				continue
			}
			compared++
			if got := s.mustRun(t, r.argv...); got != r.stdout {
				t.Errorf("%v\n%s\nSlurm's\n%s", r.argv, got, r.stdout)
			}
		}
	}
	if compared != 5 {
		t.Errorf("%d answers compared", compared)
	}
	if got, want := s.mustRun(t, "sinfo", "-h", "-S", "N", "-o", "%P"), "gpu\nsecret\nnight\ndebug*\nlong\nempty\n"; got != want {
		t.Errorf("by node names: %q, want %q", got, want)
	}
}

func TestSteps(t *testing.T) {
	s := readScene(t, "facts.txt")
	want := `         STEPID     NAME PARTITION     USER      TIME NODELIST
        8.batch    batch     debug     root     38:26 n2
        9.batch    batch     debug     root     38:26 n3
     18_0.batch    batch     debug     root      0:43 n2
     18_4.batch    batch     debug     root     37:41 n2
       10.batch    batch       gpu   nobody     38:26 g1
`
	if got := s.mustRun(t, "squeue", "-s"); got != want {
		t.Errorf("squeue -s\n%s\nwant\n%s", got, want)
	}
	if got := s.mustRun(t, "squeue", "-h", "-s", "8.batch", "-o", "%i"); got != "8.batch\n" {
		t.Errorf("squeue -s 8.batch: %q", got)
	}
	if got := s.mustRun(t, "squeue", "-h", "-s8.0"); got != "" {
		t.Errorf("squeue -s8.0: %q", got)
	}
	show := s.mustRun(t, "scontrol", "show", "step", "8")
	if !strings.HasPrefix(show,
		"StepId=8.batch UserId=0 StartTime=2026-11-20T15:42:04 TimeLimit=UNLIMITED\n   State=RUNNING Partition=debug NodeList=n2\n") {
		t.Errorf("scontrol show step 8:\n%s", show)
	}
	if rc, stdout, _ := s.run([]string{"scontrol", "show", "step", "8.7"}, nil); rc != 1 || stdout != "Job step 8.7 not found\n" {
		t.Errorf("step 8.7: %d %q", rc, stdout)
	}
}

// A view asks for what it shows and chooses by, and for no more. (That this is enough every test of a view shows: the scene sends
// nothing else.)
func TestViewsAskForWhatTheyNeed(t *testing.T) {
	const rlimits, submitLine, workDir, licenses = 118, 123, 110, 17
	for _, c := range []struct {
		argv        string
		field       uint32
		ofSpec, has bool
	}{
		{"squeue", workDir, true, false}, {"squeue -o %Z", workDir, true, true}, {"squeue -O workdir", workDir, true, true},
		{"squeue -S Z", workDir, true, true}, {"squeue -L lic", licenses, true, true}, {"squeue --json", rlimits, true, false},
		{"scontrol show job", submitLine, true, false}, {"scontrol show job", workDir, true, true}, {"squeue", 33, false, true},
	} {
		s := readScene(t, "facts.txt")
		s.mustRun(t, strings.Fields(c.argv)...)
		asked := s.asked[0].GetFields()
		if c.ofSpec {
			asked = s.asked[0].GetSpecFields()
		}
		if len(asked) == 0 || slices.Contains(asked, c.field) != c.has {
			t.Errorf("%s asks for %v; with field %d: want %v", c.argv, asked, c.field, c.has)
		}
	}
}

func TestArrayRows(t *testing.T) {
	s := readScene(t, "facts.txt")
	if got := strings.Count(s.mustRun(t, "squeue", "-h", "-r", "-j", "18,19"), "\n"); got != 13+1+2+695 {
		t.Errorf("%d rows for 13 + 695 tasks that wait, one requeued and two started", got)
	}
	if got := s.mustRun(t, "squeue", "-h", "-j", "18_8", "-r", "-o", "%i %K"); got != "18_8 8\n" {
		t.Errorf("one task: %q", got)
	}
	if got := s.mustRun(t, "squeue", "-h", "-P", "-j", "18_8", "-o", "%i %P", "-S", "P"); got != "18_8 debug\n18_8 long\n" {
		t.Errorf("one row for each partition: %q", got)
	}
}

func TestControllerAway(t *testing.T) {
	for _, argv := range [][]string{{"squeue"}, {"sinfo"}, {"sinfo", "-T"}, {"scontrol", "show", "job"}, {"scontrol", "show", "node"},
		{"scontrol", "show", "partition"}, {"scontrol", "show", "config"}} {
		lead := "error: "
		if argv[0] == "sinfo" { // as with Slurm
			lead = map[int]string{1: "slurm_load_partitions: ", 2: "slurm_load_reservations: "}[len(argv)]
		}
		var out, errs bytes.Buffer
		e := &command.Env{Name: argv[0], Stdout: &out, Stderr: &errs, Now: time.Now, Dial: func(context.Context) (*client.Client, error) {
			return nil, &client.ConnectError{Socket: "/run/sluice/lab/ctld.sock", Err: errors.New("connection refused")}
		}}
		run := map[string]func(*command.Env, []string) int{"squeue": squeue.Main, "sinfo": sinfo.Main, "scontrol": scontrol.Main}[argv[0]]
		if rc := run(e, argv[1:]); rc != 1 {
			t.Errorf("%v: exit code %d", argv, rc)
		}
		if text := errs.String(); !strings.Contains(text, lead+"Unable to contact slurm controller (connect failure)\n") ||
			!strings.Contains(text, "/run/sluice/lab/ctld.sock") {
			t.Errorf("%v: %q", argv, text)
		}
	}
}

// failAfter is an output that breaks after some writes.
type failAfter struct {
	writes int
	bytes.Buffer
}

func (f *failAfter) Write(b []byte) (int, error) {
	if f.writes--; f.writes < 0 {
		return 0, errors.New("broken pipe")
	}
	return f.Buffer.Write(b)
}

func TestIterate(t *testing.T) {
	s := readScene(t, "facts.txt")
	out := &failAfter{writes: 4}
	var slept []time.Duration
	e := &command.Env{Name: "squeue", Stdout: out, Stderr: &bytes.Buffer{}, Now: func() time.Time { return s.now },
		Sleep: func(d time.Duration) { slept = append(slept, d) },
		Dial:  func(context.Context) (*client.Client, error) { return &client.Client{ControllerAPIClient: s}, nil }}
	if rc := squeue.Main(e, []string{"-i", "5", "-j", "8", "-o", "%i"}); rc != 1 {
		t.Errorf("exit code %d after the reader went away", rc)
	}
	if got := strings.Count(out.String(), "2026\nJOBID\n8\n\n"); got != 2 || len(slept) != 2 || slept[0] != 5*time.Second {
		t.Errorf("%d views, slept %v:\n%s", got, slept, out.String())
	}
}

func TestRefusals(t *testing.T) {
	s := readScene(t, "facts.txt")
	for argv, want := range map[string]string{
		"squeue --json=x":              "squeue: error: Invalid data_parser plugin: x",
		"squeue -i 0":                  "squeue: error: --iterate=0",
		"squeue -i x":                  "squeue: error: --iterate=x",
		"sinfo -i -1":                  "sinfo: error: Error: invalid entry for --iterate=-1",
		"squeue -w n[1-":               "squeue: error: Invalid node name n[1-",
		"sinfo -n n[1-":                "sinfo: error: ",
		"scontrol show node n[1-":      "",
		"scontrol show job 8 9 10":     "too many arguments for keyword:show",
		"scontrol show job=8 9":        "too many arguments for keyword:show",
		"squeue -s x":                  "squeue: error: Invalid job_step id: x.??",
		"squeue -s x.0":                "squeue: error: Invalid job_id x.0",
		"squeue -j 99999999999":        "squeue: error: Invalid job id: 99999999999",
		"scontrol show job 4294967296": "scontrol_print_job error: Invalid job id specified",
	} {
		rc, _, stderr := s.run(strings.Fields(argv), nil)
		if rc != 1 || !strings.HasPrefix(stderr, want) {
			t.Errorf("%s: exit code %d, stderr %q, want %q", argv, rc, stderr, want)
		}
	}
}

// Names that users chose cannot end a line or move a cursor, in any view.
func TestHostileViews(t *testing.T) {
	s := readScene(t, "facts.txt")
	evil := "x\n   JobState=COMPLETED\x1b[2J\u202e\x00"
	for _, j := range s.jobs {
		j.Spec.Name, j.Spec.Comment, j.Spec.WorkDir, j.Spec.User = evil, evil, evil, evil
	}
	for _, n := range s.nodes {
		n.Reason, n.Os, n.Comment = evil, evil, evil
		n.StateFlags |= msg.NodeDrain
	}
	for _, argv := range []string{"squeue", "squeue -l", "squeue -s", "squeue --start", "squeue -o %all", "sinfo -R", "sinfo -Nl",
		"sinfo -o %all", "scontrol show job", "scontrol -o show job", "scontrol show node", "scontrol -o show node"} {
		got := s.mustRun(t, strings.Fields(argv)...)
		if strings.ContainsAny(got, "\x1b\x00\u202e") || strings.Contains(got, "\n   JobState=COMPLETED\\x1b") {
			t.Errorf("%s lets through what a user wrote", argv)
		}
	}
	if got := strings.Count(s.mustRun(t, "squeue", "-h"), "\n"); got != 23 {
		t.Errorf("%d rows, want one for each of 23 jobs that have not ended", got)
	}
}

func FuzzViewArguments(f *testing.F) {
	for _, s := range []string{"-j 8 -h", "-hj8", "-o %i -S -p,i", "-u root,nobody", "-t all", "--jo", "-w n[1-3]", "-s 8.batch", "-M lab",
		"-i", "--", "-O jobid:\x1f", "-j -5", "-rPlhj 18_[1-9]"} {
		f.Add(s)
	}
	s := readScene(f, "facts.txt")
	f.Fuzz(func(t *testing.T, line string) {
		words := strings.Fields(line)
		for _, w := range words {
			if strings.HasPrefix(w, "-i") || strings.HasPrefix(w, "--i") || strings.Contains(w, "i") && strings.HasPrefix(w, "-") {
				return // would go on for ever
			}
			if strings.Contains(w, "u") && strings.HasPrefix(w, "-") {
				return // asks the host's user database
			}
		}
		for _, name := range []string{"squeue", "sinfo"} {
			_, stdout, stderr := s.run(append([]string{name}, words...), nil)
			if strings.ContainsRune(stderr, 0x1b) && !strings.Contains(line, "\x1b") {
				t.Errorf("%s %q: %q", name, words, stdout)
			}
		}
	})
}

// A controller that is away for a moment does not end a view that repeats itself.
func TestIterateOutlivesTheController(t *testing.T) {
	s := readScene(t, "facts.txt")
	out, errs := &failAfter{writes: 6}, &bytes.Buffer{}
	dials := 0
	e := &command.Env{Name: "squeue", Stdout: out, Stderr: errs, Now: func() time.Time { return s.now }, Sleep: func(time.Duration) {},
		Dial: func(context.Context) (*client.Client, error) {
			if dials++; dials == 2 {
				return nil, errors.New("away")
			}
			return &client.Client{ControllerAPIClient: s}, nil
		}}
	if rc := squeue.Main(e, []string{"-i", "1", "-j", "8", "-o", "%i"}); rc != 1 || dials < 3 {
		t.Errorf("exit code %d after %d views", rc, dials)
	}
	if got := strings.Count(out.String(), "JOBID\n8\n"); got < 2 || errs.String() != "slurm_load_jobs error: away\n" {
		t.Errorf("%d views, stderr %q", got, errs.String())
	}
}

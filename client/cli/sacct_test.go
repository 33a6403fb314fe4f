package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/client/acct"
	"github.com/sluice-hpc/sluice/client/clienttest"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// acctConf makes a slurm.conf that names the cluster of the recorded answers.
func acctConf(t testing.TB) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "slurm.conf")
	if err := os.WriteFile(path, []byte("ClusterName=compat\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"SLURM_CONF=" + path}
}

// acctDay is the day of the recorded jobs, at a time of it.
func acctDay(t testing.TB, clock string) int64 {
	t.Helper()
	at, err := time.ParseInLocation("2006-01-02T15:04:05", "2026-11-20T"+clock, time.Local)
	if err != nil {
		t.Fatal(err)
	}
	return at.UnixNano()
}

// recordedJobs are the jobs that the recorded answers are about.
func recordedJobs(t testing.TB) []*pb.JobRecord {
	begin := acctDay(t, "18:50:53")
	job := func(id uint32, name, line, end string, cpus uint32, nodes string, hosts ...string) *pb.JobRecord {
		j := &pb.JobRecord{Id: id, State: pb.JobState_JOB_COMPLETED, Reason: "None", Partition: "debug", SubmitNs: begin,
			EligibleNs: begin, StartNs: begin, TimeLimitS: 1800,
			NodeList: nodes, NumNodes: uint32(len(hosts)), NumCpus: cpus, Scheduler: "Main", BatchVerdict: "exited",
			Spec: &pb.JobSpec{Name: name, User: "root", Group: "root", Partition: "debug", WorkDir: "/tmp", SubmitLine: line,
				MinNodes: uint32(len(hosts))}}
		if end != "" {
			j.EndNs = acctDay(t, end)
			j.BatchStartNs, j.BatchEndNs = begin, j.EndNs
		}
		for _, h := range hosts {
			j.BatchHost = hosts[0]
			n := cpus / uint32(len(hosts))
			j.Alloc = append(j.Alloc, &pb.NodeAlloc{Node: h, Cpus: n, MemMib: uint64(n) * 100})
		}
		j.ReqTres = fmt.Sprintf("cpu=%d,mem=%dM,node=%d,billing=%d", cpus, cpus*100, max(len(hosts), 1), cpus)
		if len(hosts) > 0 {
			j.AllocTres = j.ReqTres
		}
		return j
	}
	fails := func(j *pb.JobRecord, state pb.JobState, status uint32) *pb.JobRecord {
		j.State, j.ExitStatus, j.BatchStatus = state, status, status
		return j
	}
	ok := job(100001, "ok",
		"sbatch -J ok -o /dev/null --comment=hello world -C cpu --wrap for i in $(seq 200000); do :; done; sleep 6; exit 0", "18:51:00", 1,
		"n1", "n1")
	ok.Spec.Comment, ok.Spec.Features = "hello world", "cpu"
	gone := fails(job(100004, "cancelme", "sbatch -J cancelme -o /dev/null -N2 -n2 -t 10 --wrap sleep 300", "18:50:55", 2, "n[1-2]", "n1",
		"n2"), pb.JobState_JOB_CANCELLED, 15)
	gone.TimeLimitS, gone.BatchVerdict = 600, "cancelled"
	never := fails(job(100005, "cancelpd", "sbatch -J cancelpd -o /dev/null --begin=now+1hour --wrap sleep 300", "18:50:55", 1, ""),
		pb.JobState_JOB_CANCELLED, 0)
	never.Reason, never.EligibleNs, never.StartNs = "BeginTime", acctDay(t, "19:50:53"), never.EndNs
	gpu := fails(job(100007, "gpu", "sbatch -J gpu -p gpu --gres=gpu:a100:1 -o /dev/null --wrap sleep 4; exit 1", "18:50:58", 1, "g1",
		"g1"), pb.JobState_JOB_FAILED, 1<<8)
	gpu.Partition, gpu.Spec.Partition = "gpu", "gpu"
	gpu.ReqTres += ",gres/gpu=1"
	gpu.AllocTres = gpu.ReqTres
	gpu.Alloc[0].Devices = []*pb.GresDevice{{Name: "gpu", Type: "a100"}}
	list := []*pb.JobRecord{ok,
		fails(job(100002, "fail3", "sbatch -J fail3 -o /dev/null -n2 --mem=200 --wrap exit 3", "18:50:54", 2, "n4", "n4"),
			pb.JobState_JOB_FAILED, 3<<8),
		fails(job(100003, "sig", "sbatch -J sig -o /dev/null --wrap kill -9 $$", "18:50:54", 1, "n1", "n1"), pb.JobState_JOB_FAILED, 9),
		gone, never, gpu}
	for _, id := range []uint32{100014, 100015, 100016, 100017, 100008} {
		task := job(id, "arr", "sbatch -J arr -a 1-5%2 -o /dev/null --wrap sleep 3", "18:50:57", 1, "n1", "n1")
		task.ArrayJobId, task.IsArrayTask, task.ArrayTaskId = 100008, true, id-100013
		if id == 100008 {
			task.ArrayTaskId = 5
		}
		list = append(list, task)
	}
	held := job(100009, "arrpd", "sbatch -J arrpd -a 0-31:4%3 -H -o /dev/null --wrap sleep 3", "", 1, "")
	held.State, held.Reason, held.StartNs, held.EligibleNs, held.Scheduler = pb.JobState_JOB_PENDING, "JobHeldUser", 0, 0, ""
	held.ArrayJobId, held.ArrayTasks = 100009, "0-28:4%3"
	return append(list, held)
}

// TestSacctRecorded: what a real sacct answers about these jobs, to the byte, and its refusals; a hint may follow those.
func TestSacctRecorded(t *testing.T) {
	data, err := os.ReadFile("testdata/sacct/22.05.txt")
	if err != nil {
		t.Fatal(err)
	}
	environ, jobs := acctConf(t), recordedJobs(t)
	for _, part := range strings.Split("\n"+string(data), "\n=== ")[1:] {
		head, rest, _ := strings.Cut(part+"\n", "\n")
		var argv []string
		if err := json.Unmarshal([]byte(head), &argv); err != nil {
			t.Fatal(err)
		}
		t.Run(strings.Join(argv, " "), func(t *testing.T) {
			rc, rest, _ := strings.Cut(rest, "\n")
			wantOut, wantErr, _ := strings.Cut(strings.TrimPrefix(rest, "--- stdout\n"), "--- stderr\n")
			c := &clienttest.Controller{AccountingList: jobs, AccountingNowNS: acctDay(t, "20:00:00")}
			stdout, stderr, exit := run(t, c, "", environ, argv...)
			if got := fmt.Sprintf("rc %d", exit); got != rc {
				t.Errorf("%s, want %s", got, rc)
			}
			if strings.TrimRight(stdout, "\n") != strings.TrimRight(wantOut, "\n") {
				t.Errorf("stdout\n%s\nwant\n%s", stdout, wantOut)
			}
			if !strings.HasPrefix(stderr, strings.TrimSuffix(wantErr, "\n")) || wantErr == "" && stderr != "" {
				t.Errorf("stderr\n%s\nwant\n%s", stderr, wantErr)
			}
		})
	}
}

// What is asked of the controller: whose jobs, and of which time (sacct(1), DEFAULT TIME WINDOW).
func TestSacctAsks(t *testing.T) {
	now := time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)
	midnight := time.Date(now.Local().Year(), now.Local().Month(), now.Local().Day(), 0, 0, 0, 0, time.Local).UnixNano()
	hour := now.Add(-time.Hour).UnixNano()
	for _, tt := range []struct {
		line         string
		since, until int64
		check        func(r *pb.AccountingRequest) bool
	}{
		{line: "sacct", since: midnight},
		{line: "sacct -S now-1hour", since: hour},
		{line: "sacct -s R", since: now.UnixNano(), check: func(r *pb.AccountingRequest) bool {
			return slices.Equal(r.States, []pb.JobState{pb.JobState_JOB_RUNNING})
		}},
		{line: "sacct -s f,to -S now-1hour", since: hour, until: hour},
		{line: "sacct -s RQ -S now-1hour -E now", since: hour, until: now.UnixNano(),
			check: func(r *pb.AccountingRequest) bool { return r.StateFlags == pb.JobRequeued }},
		{line: "sacct -j 5,6_3,7_[1-4].batch", until: 1<<63 - 1,
			check: func(r *pb.AccountingRequest) bool { return slices.Equal(r.Ids, []string{"5", "6_3", "7_[1-4]"}) }},
		{line: "sacct -j 5 -S now-1hour", since: hour},
		{line: "sacct -X --parsable2 --clusters all --noheader --format=JobIdRaw,State --starttime 2027-01-01T00:00 --endtime now " +
			"--name 1f-2e",
			since: time.Date(2027, 1, 1, 0, 0, 0, 0, time.Local).UnixNano(), until: now.UnixNano(),
			check: func(r *pb.AccountingRequest) bool { return slices.Equal(r.Names, []string{"1f-2e"}) }},
		{line: "sacct -a -i 2-4 -I 8 -k 10 -K 1-0 -N n[1-2] -C a,b -D", since: midnight, check: func(r *pb.AccountingRequest) bool {
			return r.MinNodes == 2 && r.MaxNodes == 4 && r.MinCpus == 8 && r.MaxCpus == 8 && r.MinLimitS == 600 && r.MaxLimitS == 86400 &&
				slices.Equal(r.Nodes, []string{"n1", "n2"}) &&
				slices.Equal(r.Features, []string{"a", "b"}) && r.Duplicates && len(r.Uids) == 0
		}},
	} {
		c := &clienttest.Controller{}
		if _, stderr, exit := run(t, c, "", acctConf(t), strings.Fields(tt.line)...); exit != 0 || len(c.AccountingAsked) != 1 {
			t.Errorf("%s: exit %d, %d questions: %s", tt.line, exit, len(c.AccountingAsked), stderr)
			continue
		}
		r := c.AccountingAsked[0]
		if r.SinceNs != tt.since || r.UntilNs != tt.until || tt.check != nil && !tt.check(r) {
			t.Errorf("%s: asked %v, want from %d until %d", tt.line, r, tt.since, tt.until)
		}
	}
}

// hostile is a name that would break lines, columns and terminals.
const hostile = "a\nb\x1b[31m\u202e%s|c\xff"

// Names that users made up break no line, no column of fixed width and no document.
func TestSacctHostileNames(t *testing.T) {
	j := recordedJobs(t)[0]
	j.Spec.Name, j.Spec.Comment, j.Spec.WorkDir = "a\nb\x1b[31m\u202e%s", "x\ty", "/tmp/\r\n"
	c := &clienttest.Controller{AccountingList: []*pb.JobRecord{j}}
	stdout, _, _ := run(t, c, "", acctConf(t), "sacct", "-X", "-n", "-o", "jobname%40,comment,workdir%30,user")
	if strings.Count(stdout, "\n") != 1 || strings.ContainsAny(stdout, "\x1b\t\r\u202e") {
		t.Errorf("table: %q", stdout)
	}
	stdout, _, _ = run(t, c, "", acctConf(t), "sacct", "--json")
	if !json.Valid([]byte(stdout)) {
		t.Errorf("not JSON: %.300q", stdout)
	}
	columns, err := acct.Parse("jobname%10,state")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{hostile, strings.Repeat("é", 40), "\u202e\u202e\u202e\u202e\u202e\u202e", "", "+"} {
		b := (&acct.Table{Columns: columns}).AppendTexts(nil, []acct.Head{{Width: 10}, {Width: -5}}, []string{name, "x"})
		if len(b) != 18 {
			t.Errorf("%q is %d bytes wide: %q", name, len(b), b)
		}
	}
}

// TestSacctJSON: the document has the job and its step, and answers for an array are lists of jobs.
func TestSacctJSON(t *testing.T) {
	c := &clienttest.Controller{AccountingList: recordedJobs(t), AccountingNowNS: acctDay(t, "20:00:00")}
	stdout, stderr, exit := run(t, c, "", acctConf(t), "sacct", "--json", "-j", "100002,100004")
	var doc struct {
		Jobs []struct {
			JobID int    `json:"job_id"`
			Name  string `json:"name"`
			State struct {
				Current []string `json:"current"`
			} `json:"state"`
			ExitCode struct {
				ReturnCode struct{ Number int } `json:"return_code"`
			} `json:"exit_code"`
			Time struct{ Elapsed int }
			Tres struct {
				Allocated []struct {
					Type  string
					Count int
				}
			}
			Steps []struct {
				Step struct{ ID string }
			}
		}
		Errors []any
	}
	if err := json.Unmarshal([]byte(stdout), &doc); err != nil || exit != 0 {
		t.Fatalf("exit %d: %v %s", exit, err, stderr)
	}
	if len(doc.Jobs) != 2 || doc.Jobs[0].JobID != 100002 || doc.Jobs[0].State.Current[0] != "FAILED" ||
		doc.Jobs[0].ExitCode.ReturnCode.Number != 3 ||
		doc.Jobs[0].Time.Elapsed != 1 || doc.Jobs[0].Tres.Allocated[0].Count != 2 || doc.Jobs[0].Steps[0].Step.ID != "100002.batch" {
		t.Errorf("document: %+v", doc.Jobs)
	}
}

// TestSacctDocument: every job and step has the members of the schema, and a step's nodes are named one by one.
func TestSacctDocument(t *testing.T) {
	jobs := recordedJobs(t)
	wide := &pb.JobRecord{Id: 7, State: pb.JobState_JOB_COMPLETED, StartNs: acctDay(t, "10:00:00"), EndNs: acctDay(t, "10:01:00"),
		NodeList: "n[1-2]", BatchHost: "n1", DerivedStatus: 5 << 8,
		Alloc: []*pb.NodeAlloc{{Node: "n1", Cpus: 1}, {Node: "n2", Cpus: 1}}, Spec: &pb.JobSpec{}}
	c := &clienttest.Controller{AccountingList: append(jobs, wide), AccountingExtern: true, AccountingNowNS: acctDay(t, "20:00:00")}
	stdout, stderr, exit := run(t, c, "", acctConf(t), "sacct", "--json", "-a")
	var doc map[string]any
	if err := json.Unmarshal([]byte(stdout), &doc); err != nil || exit != 0 {
		t.Fatalf("exit %d: %v %s", exit, err, stderr)
	}
	lists, tasks, uids := map[string]bool{}, map[string]any{}, map[any]uint32{}
	for _, j := range append(jobs, wide) {
		uids[float64(j.GetId())] = j.GetSpec().GetUid()
	}
	for _, j := range doc["jobs"].([]any) {
		followsSchema(t, "accounting", j)
		for _, s := range j.(map[string]any)["steps"].([]any) {
			followsSchema(t, "accounting steps", s)
			step := s.(map[string]any)["step"].(map[string]any)
			tasks[step["id"].(string)] = s.(map[string]any)["tasks"].(map[string]any)["count"]
			lists[fmt.Sprint(s.(map[string]any)["nodes"].(map[string]any)["list"])] = true
		}
	}
	if tasks["7.batch"] != 1.0 || tasks["7.extern"] != 2.0 {
		t.Errorf("tasks of a job of two nodes: %v, want 1 of its script and 2 of extern", tasks)
	}
	for _, j := range doc["jobs"].([]any) { // root's is 2 in a new database of Slurm's, with an account of its own
		id := j.(map[string]any)["association"].(map[string]any)["id"]
		if want := float64(uids[j.(map[string]any)["job_id"]]) + 2; id != want {
			t.Errorf("association %v, want %v", id, want)
		}
	}
	derived := doc["jobs"].([]any)[len(jobs)].(map[string]any)["derived_exit_code"].(map[string]any)
	if code := derived["return_code"].(map[string]any)["number"]; code != 5.0 {
		t.Errorf("derived exit code %v, want 5", code)
	}
	last := doc["jobs"].([]any)[len(jobs)].(map[string]any)
	if memory := last["required"].(map[string]any)["memory_per_node"].(map[string]any); last["job_id"] != 7.0 || memory["set"] != true ||
		memory["number"] != 0.0 {
		t.Errorf("job %v without memory: %v, want 0 per node as in 24.05", last["job_id"], memory)
	}
	if !lists["[n1]"] || !lists["[n1 n2]"] {
		t.Errorf("nodes of steps: %v", lists)
	}
}

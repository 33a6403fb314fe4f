package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-hpc/sluice/client/clienttest"
	"github.com/sluice-hpc/sluice/client/command"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// sent compares what the controller received with a message in text form.
func sent[M proto.Message](t *testing.T, line string, got M, want string) {
	t.Helper()
	m := got.ProtoReflect().New().Interface()
	if err := prototext.Unmarshal([]byte(want), m); err != nil {
		t.Fatalf("%s: %v", want, err)
	}
	if !proto.Equal(got, m) {
		t.Errorf("%s sent {%v}, want {%v}", line, got, m)
	}
}

func TestScancelSends(t *testing.T) {
	for line, want := range map[string]string{
		"12 13_4 14_[1-3] 15.0":          `ids: ["12", "13_4", "14_[1-3]", "15.0"] filter {}`,
		"12,13":                          `ids: ["12", "13"] filter {}`,
		"-s USR1 12":                     `ids: "12" signal: 10 filter {}`,
		"--signal=SIGKILL --full 12":     `ids: "12" signal: 9 full: true filter {}`,
		"-b 12":                          `ids: "12" signal: 9 batch: true filter {}`,
		"-p a,b -n x -t pd -A acct 12":   `ids: "12" by_filter: true filter {partitions: "a,b" names: "x" states: JOB_PENDING accounts: "acct"}`,
		"-t RUNNING -q q -R r -w n[1-2]": `by_filter: true filter {states: JOB_RUNNING qos: "q" reservations: "r" nodes: ["n1", "n2"]}`,
		"-u root -H":                     `by_filter: true filter {uids: 0}`,
		"-u 54321":                       `by_filter: true filter {uids: 54321}`,
		"--jobname=x --state=SUSPENDED":  `by_filter: true filter {names: "x" states: JOB_SUSPENDED}`,
	} {
		c := &clienttest.Controller{}
		if _, stderr, exit := run(t, c, "", nil, append([]string{"scancel"}, strings.Fields(line)...)...); exit != 0 || stderr != "" ||
			len(c.Cancelled) != 1 {
			t.Errorf("scancel %s: exit %d, %q, %d calls", line, exit, stderr, len(c.Cancelled))
			continue
		}
		sent(t, line, c.Cancelled[0], want)
	}
}

func TestScancelEnvironment(t *testing.T) {
	c := &clienttest.Controller{}
	run(t, c, "", []string{"SCANCEL_PARTITION=p", "SCANCEL_NAME=n"}, "scancel", "-n", "other")
	sent(t, "SCANCEL_*", c.Cancelled[0], `by_filter: true filter {partitions: "p" names: "other"}`)
}

func TestScancelAsks(t *testing.T) {
	c := &clienttest.Controller{JobList: []*pb.JobRecord{{Id: 1, Partition: "p", Spec: &pb.JobSpec{Name: "a"}},
		{Id: 2, Spec: &pb.JobSpec{Name: "b"}}, {Id: 3, Spec: &pb.JobSpec{Name: "c"}}}}
	stdout, _, exit := run(t, c, "y\nmaybe\nn\n", nil, "scancel", "-i", "-p", "p")
	if exit != 0 || !strings.HasPrefix(stdout, "Cancel job_id=1 name=a partition=p [y/n]? ") || strings.Count(stdout, "[y/n]?") != 4 {
		t.Errorf("exit %d, %q", exit, stdout)
	}
	sent(t, "-i", c.Cancelled[0], `ids: "1"`)
}

func TestScancelReports(t *testing.T) {
	denied := &clienttest.Controller{OutcomeOf: func(string) *pb.Problem {
		return pb.NewProblem(pb.CodeAccessDenied,
			"job 12 belongs to alice")
	}}
	_, stderr, exit := run(t, denied, "", nil, "scancel", "12")
	if exit != 210 ||
		stderr != "scancel: error: Kill job error on job id 12: Access/permission denied\nscancel: error: job 12 belongs to alice\n" {
		t.Errorf("exit %d, %q", exit, stderr)
	}
	_, stderr, _ = run(t, &clienttest.Controller{}, "", nil, "scancel", "-v", "-s", "TERM", "-b", "12")
	if stderr != "scancel: Signal 15 to batch job 12\n" {
		t.Errorf("-v says %q", stderr)
	}
}

func TestScontrolSends(t *testing.T) {
	for line, want := range map[string]string{
		"hold 12,13":                         `verb: "hold" ids: ["12", "13"]`,
		"release jobname=x":                  `verb: "release" names: "x"`,
		"uhold 12":                           `verb: "uhold" ids: "12"`,
		"requeue incomplete 12":              `verb: "requeue" ids: "12" incomplete: true`,
		"requeuehold state=SpecialExit 12_3": `verb: "requeuehold" ids: "12_3" state: "SpecialExit"`,
		"susp 12":                            `verb: "suspend" ids: "12"`,
		"resume 12":                          `verb: "resume" ids: "12"`,
		"top 12":                             `verb: "top" ids: "12"`,
	} {
		c := &clienttest.Controller{}
		if _, stderr, exit := run(t, c, "", nil, append([]string{"scontrol"}, strings.Fields(line)...)...); exit != 0 || stderr != "" ||
			len(c.Controls) != 1 {
			t.Errorf("scontrol %s: exit %d, %q", line, exit, stderr)
			continue
		}
		sent(t, line, c.Controls[0], want)
	}
}

func TestScontrolUpdates(t *testing.T) {
	for line, want := range map[string]proto.Message{
		"update JobId=12 TimeLimit=+30 nice=5": updateJob("12", "TimeLimit+", "30", "Nice", "5"),
		"update job 12 timelimit-=10":          updateJob("12", "TimeLimit-", "10"),
		"update jobid=12,13_2 Comment=a=b priority=0": &pb.UpdateJobRequest{Ids: []string{"12", "13_2"},
			Set: set("Comment", "a=b", "Priority", "0")},
		"update timelimit=UNLIMITED JobId=12":          updateJob("12", "TimeLimit", "UNLIMITED"),
		"update NodeName=n[1-2] State=drain Reason=x":  &pb.UpdateNodeRequest{Nodes: "n[1-2]", Set: set("State", "DRAIN", "Reason", "x")},
		"update node=n1 state=resume":                  &pb.UpdateNodeRequest{Nodes: "n1", Set: set("State", "RESUME")},
		"update PartitionName=p State=down MaxTime=10": &pb.UpdatePartitionRequest{Name: "p", Set: set("State", "DOWN", "MaxTime", "10")},
		"create partition=p nodes=n1":                  &pb.UpdatePartitionRequest{Name: "p", Create: true, Set: set("Nodes", "n1")},
		"create nodename=d[1-2] state=future cpus=4":   &pb.CreateNodesRequest{Nodes: "d[1-2]", Set: set("state", "future", "cpus", "4")},
		"delete NodeName=d[1-2]":                       &pb.DeleteNodesRequest{Nodes: "d[1-2]"},
		"delete node d1":                               &pb.DeleteNodesRequest{Nodes: "d1"},
		"delete PartitionName=p":                       &pb.UpdatePartitionRequest{Name: "p", Delete: true},
		"reconfigure":                                  &pb.ReconfigureRequest{},
		"shutdown":                                     &pb.ShutdownRequest{NodesToo: true},
		"shutdown slurmctld":                           &pb.ShutdownRequest{},
	} {
		c := &clienttest.Controller{}
		if _, stderr, exit := run(t, c, "", nil, append([]string{"scontrol"}, strings.Fields(line)...)...); exit != 0 || stderr != "" ||
			len(c.Updates) != 1 {
			t.Errorf("scontrol %s: exit %d, %q", line, exit, stderr)
			continue
		}
		if got := c.Updates[0].(proto.Message); !proto.Equal(got, want) {
			t.Errorf("scontrol %s sent {%v}, want {%v}", line, got, want)
		}
	}
}

func set(pairs ...string) []*pb.KeyValue {
	var list []*pb.KeyValue
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, &pb.KeyValue{Key: pairs[i], Value: pairs[i+1]})
	}
	return list
}

func updateJob(id string, pairs ...string) *pb.UpdateJobRequest {
	return &pb.UpdateJobRequest{Ids: []string{id}, Set: set(pairs...)}
}

func TestScontrolUpdateByName(t *testing.T) {
	c := &clienttest.Controller{JobList: []*pb.JobRecord{{Id: 4}, {Id: 5}}}
	if _, stderr, exit := run(t, c, "", nil, "scontrol", "update", "jobname=x", "nice=1"); exit != 0 {
		t.Fatalf("exit %d, %q", exit, stderr)
	}
	if got := c.Updates[0].(*pb.UpdateJobRequest).GetIds(); len(got) != 2 || got[1] != "5" {
		t.Errorf("ids %q", got)
	}
}

func TestScontrolWritesScripts(t *testing.T) {
	c := &clienttest.Controller{Script: []byte("#!/bin/sh\nx\n")}
	if stdout, _, exit := run(t, c, "", nil, "scontrol", "write", "batch_script", "12", "-"); exit != 0 || stdout != "#!/bin/sh\nx\n" {
		t.Errorf("exit %d, %q", exit, stdout)
	}
	t.Chdir(t.TempDir())
	stdout, _, exit := run(t, c, "", nil, "scontrol", "write", "batch_script", "12")
	if data, err := os.ReadFile("slurm-12.sh"); err != nil || string(data) != "#!/bin/sh\nx\n" || exit != 0 ||
		stdout != "batch script for job 12 written to slurm-12.sh\n" {
		t.Errorf("exit %d, %q, %q, %v", exit, stdout, data, err)
	}
}

func TestScontrolWaitJob(t *testing.T) {
	c := &clienttest.Controller{JobList: []*pb.JobRecord{{Id: 12, State: pb.JobState_JOB_RUNNING}}}
	if _, stderr, exit := run(t, c, "", nil, "scontrol", "wait_job", "12"); exit != 0 ||
		stderr != "scontrol: Nodes are ready for job 12\n" {
		t.Errorf("a running job: exit %d, %q", exit, stderr)
	}
	for _, state := range []pb.JobState{pb.JobState_JOB_FAILED, pb.JobState_JOB_PENDING} {
		c.JobList[0].State = state
		if _, stderr, exit := run(t, c, "", nil, "scontrol", "wait_job", "12"); exit != 1 ||
			stderr != "scontrol: Job 12 no longer running\n" {
			t.Errorf("a job that is %s: exit %d, %q", state, exit, stderr)
		}
	}
}

func TestScontrolReadsCommands(t *testing.T) {
	stdout, stderr, exit := run(t, &clienttest.Controller{}, "ping\nfoo\n\n!!\nexit\nping\n", nil, "scontrol")
	if exit != 1 || strings.Count(stdout, "Slurmctld(primary) at head is UP") != 1 || strings.Count(stderr, "invalid keyword: foo") != 2 {
		t.Errorf("exit %d, %q, %q", exit, stdout, stderr)
	}
}

func TestScontrolHostlistFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(path, []byte("n1\nn2,n4\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if stdout, _, exit := run(t, &clienttest.Controller{}, "", nil, "scontrol", "show", "hostlist", path); exit != 0 ||
		stdout != "n[1-2,4]\n" {
		t.Errorf("exit %d, %q", exit, stdout)
	}
	if stdout, _, _ := run(t, &clienttest.Controller{}, "", []string{"SLURM_JOB_NODELIST=a[1-2]"}, "scontrol", "show",
		"hostnames"); stdout != "a1\na2\n" {
		t.Errorf("hostnames of the job: %q", stdout)
	}
}

// Without a controller every command says so in Slurm's words and fails.
func TestNoController(t *testing.T) {
	dir := t.TempDir()
	for _, line := range []string{"sbatch --wrap=true", "scancel 12", "scontrol hold 12", "scontrol update jobid=12 nice=1",
		"scontrol ping", "scontrol reconfigure"} {
		var out, errs strings.Builder
		env := command.Process(strings.Fields(line)[0])
		env.Stdout, env.Stderr, env.Environ = &out, &errs, []string{"SLUICE_SOCKET=" + filepath.Join(dir, "none")}
		exit := -1
		for _, c := range commands() {
			if c.name == env.Name {
				exit = c.run(env, strings.Fields(line)[1:])
			}
		}
		if exit != 1 || !strings.Contains(errs.String(), "Unable to contact slurm controller (connect failure)") ||
			!strings.Contains(errs.String(), filepath.Join(dir, "none")) {
			t.Errorf("%s: exit %d, %q", line, exit, errs.String())
		}
	}
}

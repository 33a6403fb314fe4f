package cli

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/client/clienttest"
	"github.com/sluice-hpc/sluice/client/msg"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// stepScene is a batch job with a step, and an allocation of salloc with two.
func stepScene() *scene {
	begin := time.Unix(1800000000, 0).UnixNano()
	job := func(id uint32, name, nodes string, interactive bool) *msg.JobRecord {
		return &msg.JobRecord{Id: id, State: msg.JobState_JOB_RUNNING, Partition: "debug", NodeList: nodes, StartNs: begin,
			Spec: &msg.JobSpec{Name: name, User: "root", Interactive: interactive}}
	}
	step := func(job, id, tasks, cpus uint32, nodes, name, tres string, limit uint32, hosts ...string) *msg.StepRecord {
		s := &msg.StepRecord{JobId: job, StepId: id, State: msg.JobState_JOB_RUNNING, StartNs: begin + 60e9, NodeList: nodes,
			NumTasks: tasks, NumCpus: cpus, AllocTres: tres, TimeLimitS: limit,
			Spec: &msg.StepSpec{Name: name, Host: "login", Pid: 4711}}
		for _, h := range hosts {
			s.Nodes = append(s.Nodes, &msg.StepNode{Node: h})
		}
		return s
	}
	batch := job(7, "batch", "n1", false)
	batch.BatchHost = "n1"
	gpus := step(8, 1, 1, 3, "n2", "small", "cpu=3,gres/gpu=1,mem=300M,node=1", 0, "n2")
	gpus.Spec.TresPerNode, gpus.Spec.Distribution = "gres/gpu:1", "plane=2"
	return &scene{now: time.Unix(1800000090, 0), jobs: []*msg.JobRecord{batch, job(8, "alloc", "n[2-3]", true)},
		nodes: []*msg.NodeRecord{{Name: "n1"}, {Name: "n2"}, {Name: "n3"}},
		steps: []*msg.StepRecord{step(7, 0, 2, 2, "n1", "first", "cpu=2,mem=200M,node=1", msg.Unlimited, "n1"),
			step(8, 0, 2, 2, "n[2-3]", "wide", "cpu=2,mem=400M,node=2", 600, "n2", "n3"), gpus}}
}

// A real 22.05 has recorded these forms (client/compat/testdata/steps).
func TestStepRows(t *testing.T) {
	s := stepScene()
	for words, want := range map[string]string{
		"squeue -s": `         STEPID     NAME PARTITION     USER      TIME NODELIST
            7.0    first     debug     root      0:30 n1
        7.batch    batch     debug     root      1:30 n1
            8.0     wide     debug     root      0:30 n[2-3]
            8.1    small     debug     root      0:30 n2
`,
		"squeue -h -s 8.1 -o %i|%j|%l|%A|%b": "8.1|small|UNLIMITED|1|gres/gpu:1\n",
		"squeue -h -s 8.0 -o %l|%N":          "10:00|n[2-3]\n",
		"squeue -h -s -w n3 -o %i":           "8.0\n",
		"squeue -h -s -n wide -o %i":         "8.0\n",
		"squeue -h -s -n batch -o %i":        "7.0\n7.batch\n",
		"squeue -h -s -O stepid:8,numcpus:4,cpufreq": "7.0     2   Unknown-Unknown:Unkn\n7.batch 0   0-0:0               \n" +
			"8.0     2   Unknown-Unknown:Unkn\n8.1     3   Unknown-Unknown:Unkn\n",
		"squeue -h -s -S -i -o %i": "8.1\n8.0\n7.batch\n7.0\n",
		"squeue -h -s -S l -o %l":  "10:00\nUNLIMITED\nUNLIMITED\nUNLIMITED\n",
		"scontrol show step 8.0": `StepId=8.0 UserId=0 StartTime=2027-01-15T08:01:00 TimeLimit=00:10:00
   State=RUNNING Partition=debug NodeList=n[2-3]
   Nodes=2 CPUs=2 Tasks=2 Name=wide Network=(null)
   TRES=cpu=2,mem=400M,node=2
   ResvPorts=(null)
   CPUFreqReq=Default Dist=Cyclic
   SrunHost:Pid=login:4711

`,
		"scontrol -o show step 8.1": "StepId=8.1 UserId=0 StartTime=2027-01-15T08:01:00 TimeLimit=UNLIMITED State=RUNNING Partition=debug " +
			"NodeList=n2 Nodes=1 CPUs=3 Tasks=1 Name=small Network=(null) TRES=cpu=3,gres/gpu=1,mem=300M,node=1 ResvPorts=(null) " +
			"CPUFreqReq=Default Dist=Plane SrunHost:Pid=login:4711 TresPerNode=gres/gpu:1\n",
	} {
		if got := s.mustRun(t, strings.Fields(words)...); got != want {
			t.Errorf("%s\n%s\nwant\n%s", words, got, want)
		}
	}
	if got := s.mustRun(t, "scontrol", "show", "step", "7"); strings.Count(got, "StepId=") != 2 || !strings.Contains(got, "Dist=Block") {
		t.Errorf("the steps of a batch job:\n%s", got)
	}
	for words, want := range map[string]string{"scontrol show step 8.9": "Job step 8.9 not found\n", "scontrol show step 9": ""} {
		if rc, out, _ := s.run(strings.Fields(words), nil); rc != 1 || out != want {
			t.Errorf("%s: %d %q", words, rc, out)
		}
	}
	if got := s.mustRun(t, "squeue", "-s", "8.1", "--json"); !strings.Contains(got, `"distribution": "Plane"`) ||
		!strings.Contains(got, `"id": "8.1"`) {
		t.Errorf("--json:\n%s", got)
	}
}

// stepJobs are a batch job that has ended with two steps, one of which was killed, and an allocation without a script.
func stepJobs() *clienttest.Controller {
	begin := time.Unix(1800000000, 0).UnixNano()
	job := &pb.JobRecord{Id: 7, Attempt: 1, State: pb.JobState_JOB_FAILED, ExitStatus: 2 << 8, DerivedStatus: 3 << 8, Partition: "debug",
		StartNs: begin, EndNs: begin + 100e9, NodeList: "n[1-2]", NumCpus: 4, BatchHost: "n1", BatchVerdict: "exited", BatchStatus: 2 << 8,
		AllocTres: "cpu=4,mem=400M,node=2,billing=4",
		Alloc:     []*pb.NodeAlloc{{Node: "n1", Cpus: 3, MemMib: 300}, {Node: "n2", Cpus: 1, MemMib: 100}},
		Usage:     []*pb.StepUsage{{Node: "n1", CpuUsecUser: 1e6, MaxRssKib: 1024}},
		Spec:      &pb.JobSpec{Name: "wide", User: "root", Account: "root"}}
	alloc := &pb.JobRecord{Id: 8, Attempt: 2, State: pb.JobState_JOB_CANCELLED, Partition: "debug", StartNs: begin, EndNs: begin + 50e9,
		NodeList: "n1", NumCpus: 2, Alloc: []*pb.NodeAlloc{{Node: "n1", Cpus: 2}}, Usage: []*pb.StepUsage{{Node: "n1"}},
		Spec: &pb.JobSpec{Name: "alloc", User: "root", Interactive: true}}
	return &clienttest.Controller{AccountingList: []*pb.JobRecord{job, alloc}, AccountingNowNS: begin + 200e9,
		StepList: []*pb.StepRecord{
			{JobId: 7, Attempt: 1, StepId: 0, State: pb.JobState_JOB_FAILED, ExitStatus: 3 << 8, StartNs: begin + 10e9, EndNs: begin + 20e9,
				NodeList: "n[1-2]", NumTasks: 4, NumCpus: 4, AllocTres: "cpu=4,mem=400M,node=2",
				Spec: &pb.StepSpec{Name: "spread", SubmitLine: "srun -J spread true"},
				Nodes: []*pb.StepNode{{Node: "n1", Tasks: []uint32{0, 1, 2}, Usage: &pb.StepUsage{CpuUsecUser: 6e6, MaxRssKib: 2048}},
					{Node: "n2", Tasks: []uint32{3}, Usage: &pb.StepUsage{CpuUsecUser: 2e6, MaxRssKib: 4096}}}},
			{JobId: 7, Attempt: 1, StepId: 1, State: pb.JobState_JOB_CANCELLED, StopReason: "cancel", ExitStatus: 9, StartNs: begin + 20e9,
				EndNs: begin + 30e9, NodeList: "n1", NumTasks: 1, NumCpus: 3, AllocTres: "cpu=3,mem=300M,node=1",
				Spec: &pb.StepSpec{Name: "sh"}, Nodes: []*pb.StepNode{{Node: "n1", Tasks: []uint32{0}}}},
			{JobId: 8, Attempt: 1, StepId: 0, Spec: &pb.StepSpec{Name: "of an earlier attempt"}},
			{JobId: 8, Attempt: 2, StepId: 0xfffffffa, State: pb.JobState_JOB_COMPLETED, StartNs: begin, EndNs: begin + 50e9,
				NodeList: "n1", NumTasks: 1, NumCpus: 2, Spec: &pb.StepSpec{Name: "interactive"}, Nodes: []*pb.StepNode{{Node: "n1"}}},
		}}
}

func TestSacctSteps(t *testing.T) {
	c := stepJobs()
	for words, want := range map[string]string{
		"sacct -nP -j 7 -o jobid,jobname,state,exitcode,derivedexitcode,alloccpus,ntasks": "7|wide|FAILED|2:0|3:0|4|\n" +
			"7.batch|batch|FAILED|2:0||3|1\n7.0|spread|FAILED|3:0||4|4\n7.1|sh|CANCELLED by 0|0:9||3|1\n",
		"sacct -nP -j 8 -o jobid,jobname,state": "8|alloc|CANCELLED by 0\n8.interactive|interactive|COMPLETED\n",
		"sacct -nP -j 7.0 -o jobid,alloctres,nodelist,layout,submitline,nnodes": "7.0|cpu=4,mem=400M,node=2|n[1-2]|Block|" +
			"srun -J spread true|2\n",
		"sacct -nP -j 7.0 -o elapsed,totalcpu,avecpu,maxrss,maxrssnode,maxrsstask,mincpunode,reqcpufreq": "00:00:10|00:00:08|00:00:02|" +
			"4M|n2|3|n2|Unknown\n",
		"sacct -nP -j 7 -o jobid,totalcpu":          "7|00:00:09\n7.batch|00:00:01\n7.0|00:00:08\n7.1|00:00:00\n",
		"sacct -nP -j 7 -N n2 -o jobid":             "7\n7.0\n",
		"sacct -nP -X -j 7 -o jobid,tresusageintot": "7|cpu=00:00:09,fs/disk=0,mem=6M,pages=0\n",
	} {
		if out, stderr, exit := run(t, c, "", acctConf(t), strings.Fields(words)...); exit != 0 || out != want || stderr != "" {
			t.Errorf("%s: %d %q\n%s\nwant\n%s", words, exit, stderr, out, want)
		}
	}
	out, _, _ := run(t, c, "", acctConf(t), "seff", "7")
	for _, line := range []string{"CPU Utilized: 00:00:09\n", "Memory Utilized: 6.00 MB\n"} {
		if !strings.Contains(out, line) {
			t.Errorf("seff lacks %q:\n%s", line, out)
		}
	}
	if out, _, _ = run(t, c, "", acctConf(t), "sacct", "-j", "7", "--json"); !strings.Contains(out, `"id": "7.1"`) {
		t.Errorf("--json:\n%s", out)
	}
}

func TestSstatSteps(t *testing.T) {
	c := stepJobs()
	use := func(step uint32, node string) *pb.StepUsage {
		return &pb.StepUsage{Key: &pb.StepKey{JobId: 7, Attempt: 1, Step: step}, Node: node, MaxRssKib: 1024, PidList: []uint32{42}}
	}
	c.UsageList = []*pb.StepUsage{use(pb.BatchStep, "n1"), use(0, "n1"), use(0, "n2"), use(1, "n1")}
	for words, want := range map[string]string{
		"sstat -nP -j 7 -o jobid,ntasks":    "7.0|4\n",
		"sstat -nP -a -j 7 -o jobid,ntasks": "7.batch|1\n7.0|4\n7.1|1\n",
		"sstat -nP -j 7.1 -o jobid,ntasks":  "7.1|1\n",
		"sstat -nP -i -j 7.0":               "7.0|n1|42\n7.0|n2|42\n",
	} {
		if out, stderr, exit := run(t, c, "", acctConf(t), strings.Fields(words)...); exit != 0 || out != want || stderr != "" {
			t.Errorf("%s: %d %q\n%s\nwant\n%s", words, exit, stderr, out, want)
		}
	}
}

func TestUpdateStep(t *testing.T) {
	for words, want := range map[string]string{
		"update stepid=7.0 timelimit=15": "7.0 TimeLimit=15", "update step=7 TimeLimit=1-0": "7 TimeLimit=1-0",
		"update timelimit=UNLIMITED StepId=7_1.0": "7_1.0 TimeLimit=UNLIMITED"} {
		c := &clienttest.Controller{}
		_, stderr, exit := run(t, c, "", acctConf(t), append([]string{"scontrol"}, strings.Fields(words)...)...)
		if exit != 0 || len(c.Updates) != 1 {
			t.Fatalf("%s: %d %q", words, exit, stderr)
		}
		r := c.Updates[0].(*pb.UpdateStepRequest)
		if got := r.GetId() + " " + r.GetSet()[0].GetKey() + "=" + r.GetSet()[0].GetValue(); got != want {
			t.Errorf("%s asks for %q, want %q", words, got, want)
		}
	}
	for words, want := range map[string]string{
		"update stepid=7.0":                 "No changes specified\n",
		"update stepid=7.0 timelimit=abc":   "scontrol: error: Invalid TimeLimit value\n",
		"update stepid=7.0 name=x":          "Update of this parameter is not supported: name=x\nRequest aborted\n",
		"update stepid=abc timelimit=5":     "Invalid StepID parameter: stepid=abc\nRequest aborted\n",
		"update stepid=7.batch timelimit=5": "slurm_update error: Requested operation not supported on this system\n",
	} {
		c := &clienttest.Controller{}
		_, stderr, exit := run(t, c, "", acctConf(t), append([]string{"scontrol"}, strings.Fields(words)...)...)
		if exit != 1 || !strings.HasPrefix(stderr, want) || len(c.Updates) > 0 {
			t.Errorf("%s: %d %q", words, exit, stderr)
		}
	}
}

func TestCancelStep(t *testing.T) {
	c := &clienttest.Controller{}
	_, stderr, exit := run(t, c, "", acctConf(t), "scancel", "-v", "-s", "CONT", "7.0")
	if exit != 0 || !strings.Contains(stderr, "scancel: Signal 18 to step 7.0\n") ||
		!slices.Equal(c.Cancelled[0].GetIds(), []string{"7.0"}) {
		t.Errorf("%d %q", exit, stderr)
	}
}

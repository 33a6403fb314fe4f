package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/client/acct"
	"github.com/sluice-hpc/sluice/client/clienttest"
	"github.com/sluice-hpc/sluice/client/msg"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// measured gives a job what a step with two GPUs has used, one of which says nothing.
func measured(t testing.TB) *pb.JobRecord {
	j := recordedJobs(t)[5]
	j.EndNs = j.StartNs + 3600e9
	j.BatchEndNs = j.EndNs
	j.Alloc[0].Devices = append(j.Alloc[0].Devices, &pb.GresDevice{Name: "gpu", Type: "a100", Index: 1})
	j.Usage = []*pb.StepUsage{{Node: "g1", CpuUsecUser: 1700e6, CpuUsecSystem: 100e6, MaxRssKib: 51200, MaxVmKib: 204800,
		ReadBytes: 3 << 20, WriteBytes: 1500, PageFaults: 9,
		Devices: []*pb.DeviceUse{{Id: "GPU-1", UtilPercent: 40, MaxUtilPercent: 90, MaxMemoryMib: 1024, EnergyMj: 7200000, Samples: 10},
			{Id: "GPU-2", UtilPercent: -1, MaxMemoryMib: -1, EnergyMj: -1, Samples: 10}}}}
	return j
}

// TestSeffOfArray: an array is summed up, unless its tasks are asked for.
func TestSeffOfArray(t *testing.T) {
	c := &clienttest.Controller{}
	for i := range uint32(3) {
		j := measured(t)
		j.Id, j.ArrayJobId, j.ArrayTaskId, j.IsArrayTask = 100007+i, 100007, i, true
		j.Usage[0].MaxRssKib = 10240 * uint64(i+1)
		c.AccountingList = append(c.AccountingList, j)
	}
	c.AccountingList[2].State = pb.JobState_JOB_COMPLETED
	waiting := measured(t)
	waiting.Id, waiting.ArrayJobId, waiting.ArrayTasks, waiting.State = 100010, 100007, "3-99", pb.JobState_JOB_PENDING
	waiting.Alloc, waiting.Usage, waiting.StartNs, waiting.EndNs = nil, nil, 0, 0
	c.AccountingList = append(c.AccountingList, waiting)
	const want = `Array Job ID: 100007
Cluster: compat
User/Group: root/root
Tasks: 100 (97 PENDING, 2 FAILED, 1 COMPLETED)
CPU Utilized: 01:30:00
CPU Efficiency: 50.00% of 03:00:00 core-walltime
Job Wall-clock time: 01:00:00 on average, at most 01:00:00
Memory Utilized: 20.00 MB on average, at most 30.00 MB
Memory Efficiency: 20.00% of 100.00 MB on average
GPU Efficiency: 40.00% of 06:00:00 GPU-walltime
Each task: seff --tasks JOB, or seff JOB_TASK
`
	if stdout, stderr, exit := run(t, c, "", acctConf(t), "seff", "100007"); stdout != want || exit != 0 {
		t.Errorf("exit %d, %s, got\n%s", exit, stderr, stdout)
	}
	if stdout, _, _ := run(t, c, "", acctConf(t), "seff", "--tasks", "100007"); strings.Count(stdout, "Job ID: 1") != 8 ||
		strings.Contains(stdout, "Tasks:") {
		t.Errorf("--tasks:\n%s", stdout)
	}
	c.AccountingList = c.AccountingList[:1]
	if stdout, _, _ := run(t, c, "", acctConf(t), "seff", "100007"); !strings.HasPrefix(stdout,
		"Job ID: 100007\nArray Job ID: 100007_0\n") {
		t.Errorf("an array of one task:\n%s", stdout)
	}
}

func TestSeff(t *testing.T) {
	c := &clienttest.Controller{AccountingList: []*pb.JobRecord{measured(t)}}
	stdout, stderr, exit := run(t, c, "", acctConf(t), "seff", "100007")
	want := `Job ID: 100007
Cluster: compat
User/Group: root/root
State: FAILED (exit code 1)
Cores: 1
CPU Utilized: 00:30:00
CPU Efficiency: 50.00% of 01:00:00 core-walltime
Job Wall-clock time: 01:00:00
Memory Utilized: 50.00 MB
Memory Efficiency: 50.00% of 100.00 MB
GPUs: 2 (a100)
GPU Efficiency: 40.00% of 02:00:00 GPU-walltime
GPUs Measured: 1 of 2, the driver reports nothing about the others
GPU-hours wasted: 1.20 of 2.00
GPU Memory Utilized: 1.00 GB
GPU Energy: 2.00 Wh
`
	if stdout != want || exit != 0 || stderr != "" {
		t.Errorf("exit %d, %s, got\n%s", exit, stderr, stdout)
	}
	// No driver says anything: that is n/a and not 0.
	j := measured(t)
	j.Usage[0].Devices = j.Usage[0].Devices[1:]
	c = &clienttest.Controller{AccountingList: []*pb.JobRecord{j}}
	if stdout, _, _ = run(t, c, "", acctConf(t), "seff", "100007"); !strings.HasSuffix(stdout,
		"GPU Efficiency: n/a\nGPU Memory Utilized: n/a\nGPU Energy: n/a\n") {
		t.Errorf("without figures:\n%s", stdout)
	}
	if _, stderr, exit := run(t, &clienttest.Controller{}, "", acctConf(t), "seff", "77"); exit != 1 ||
		!strings.Contains(stderr, "Job not found: 77") {
		t.Errorf("of no job: exit %d, %s", exit, stderr)
	}
	if _, stderr, exit := run(t, &clienttest.Controller{}, "", acctConf(t), "seff", "x"); exit != 1 ||
		!strings.Contains(stderr, "Bad job/step specified: x") {
		t.Errorf("of no id: exit %d, %s", exit, stderr)
	}
}

// TestUsageFields: what a step used stands in the columns of sacct in the units of a real one; what was not measured is left out.
func TestUsageFields(t *testing.T) {
	c := &clienttest.Controller{AccountingList: []*pb.JobRecord{measured(t)}}
	stdout, _, _ := run(t, c, "", acctConf(t), "sacct", "-nP", "-j", "100007.batch", "-o",
		"maxrss,maxvmsize,maxdiskread,maxdiskwrite,maxpages,avecpu,totalcpu,usercpu,systemcpu,tresusageintot,tresusageouttot,tresusageinmaxnode,consumedenergy")
	want := "50M|200M|3M|0.00M|9|00:30:00|00:30:00|00:28:20|00:01:40|cpu=00:30:00,energy=7200,fs/disk=3145728,gres/gpumem=1G,gres/gpuutil=40,mem=50M,pages=9,vmem=200M|" +
		"fs/disk=1500|cpu=g1,energy=g1,fs/disk=g1,gres/gpumem=g1,gres/gpuutil=g1,mem=g1,pages=g1,vmem=g1|7200\n"
	if stdout != want {
		t.Errorf("got\n%swant\n%s", stdout, want)
	}
	// The job's own line has them all where its steps have none, and otherwise only what nobody adds up: energy.
	for options, want := range map[string]string{
		"-nPX": "|00:30:00|cpu=00:30:00,energy=7200,fs/disk=3145728," +
			"gres/gpumem=1G,gres/gpuutil=40,mem=50M,pages=9,vmem=200M|7200\n",
		"-nP": "|00:30:00||7200\n",
	} {
		stdout, _, _ = run(t, c, "", acctConf(t), "sacct", options, "-j", "100007", "-o", "maxrss,totalcpu,tresusageintot,consumedenergy")
		if line, _, _ := strings.Cut(stdout, "\n"); line+"\n" != want {
			t.Errorf("of the job itself with %s: %q", options, stdout)
		}
	}
	// What was used on other nodes than that of the script are the figures of the extern step.
	j := measured(t)
	j.Usage = append(j.Usage, &pb.StepUsage{Node: "g2", Devices: []*pb.DeviceUse{{Id: "GPU-3", UtilPercent: 70, MaxMemoryMib: 512,
		EnergyMj: -1, Samples: 10}}})
	c = &clienttest.Controller{AccountingList: []*pb.JobRecord{j}}
	stdout, _, _ = run(t, c, "", acctConf(t), "sacct", "-nP", "-j", "100007", "-o", "jobid,tresusageintot,consumedenergy")
	if !strings.HasSuffix(stdout, "\n100007.extern|cpu=00:00:00,fs/disk=0,gres/gpumem=512M,gres/gpuutil=70,mem=0,pages=0|\n") {
		t.Errorf("on two nodes: %s", stdout)
	}
}

func TestSacctmgr(t *testing.T) {
	for _, tt := range []struct {
		line, stdout, stderr string
		exit                 int
	}{
		{line: "sacctmgr -nP show users withassoc format=account,qos where user=root cluster=compat", stdout: "root|normal\n"},
		{line: "sacctmgr -nP show users withassoc format=account,qos where user=no-such-user cluster=compat"},
		{line: "sacctmgr -nP show users withassoc format=account,qos where user=root cluster=other"},
		{line: "sacctmgr -p list tres",
			stdout: "Type|Name|ID|\ncpu||1|\nmem||2|\nenergy||3|\nnode||4|\nbilling||5|\nfs|disk|6|\nvmem||7|\npages||8|\ngres|gpu|1001|\n"},
		{line: "sacctmgr show tres where type=gres",
			stdout: "    Type            Name     ID \n-------- --------------- ------ \n    gres             gpu   1001 \n"},
		{line: "sacctmgr list account",
			stdout: "   Account                Descr                  Org \n---------- -------------------- -------------------- \n     " +
				" root default root account                 root \n"},
		{line: "sacctmgr show qos normal format=name,priority,maxtrespu",
			stdout: "      Name   Priority     MaxTRESPU \n---------- ---------- ------------- \n    normal          0               \n"},
		{line: "sacctmgr show user root format=user%-20,defaultaccount%5 -n", stdout: "root                  root \n"},
		{line: "sacctmgr show user root",
			stdout: "      User   Def Acct     Admin \n---------- ---------- --------- \n      root       root Administ+ \n"},
		{line: "sacctmgr list assoc where user=root format=account,user -nP", stdout: "root|root\n"},
		{line: "sacctmgr show runawayjobs", stdout: "Runaway Jobs: No runaway jobs found on cluster compat\n"},
		{line: "sacctmgr list wckey", stdout: "     WCKey    Cluster       User \n---------- ---------- ---------- \n"},
		{line: "sacctmgr show user format=bogus", stderr: "Unknown field 'bogus'\n", exit: 1},
		{line: "sacctmgr show user bogus=3", stderr: " Unknown condition: bogus=3\n Use keyword 'set' to modify value\n", exit: 1},
		{line: "sacctmgr show foo",
			stderr: "No valid entity in list command\nInput line must include \"Account\", \"Association\", \"Cluster\", " +
				"\"Configuration\",\n", exit: 1},
		{line: "sacctmgr frobnicate", stderr: "invalid keyword: frobnicate\n", exit: 1},
		{line: "sacctmgr -i add cluster x", stderr: "sacctmgr: error: add cluster is not supported", exit: 1},
		{line: "sacctmgr -r add account x", stderr: "Can't run this command in readonly mode.\n", exit: 1},
		{line: "sacctmgr -i add account x maxjobs=99999999999",
			stderr: "sacctmgr: error: Invalid value for MaxJobs (99999999999)\n", exit: 1},
		{line: "sacctmgr -i add account x maxjobs=-2", stderr: "sacctmgr: error: Invalid value for MaxJobs (-2)\n", exit: 1},
		{line: "sacctmgr -i add account x limithours=Mon", stderr: "sacctmgr: error: LimitHours: Mon has no hours", exit: 1},
		{line: "sacctmgr -i modify user x set limithours+=8:00-9:00", stderr: " Unknown option: limithours+=8:00-9:00\n", exit: 1},
		{line: "sacctmgr -i modify user x set maxjobs+=2", stderr: " Unknown option: maxjobs+=2\n", exit: 1},
		{line: "sacctmgr -i delete user", stderr: " No conditions given to remove, not executing.\n", exit: 1},
		{line: "sacctmgr add coordinator names=x", stderr: " You need to specify a account list here.\n", exit: 1},
		{line: "sacctmgr", stderr: "sacctmgr: error: there is no interactive mode", exit: 1},
	} {
		c := &clienttest.Controller{NodeList: []*pb.NodeRecord{{Name: "g1", CfgTres: "cpu=8,mem=8000M,billing=8,gres/gpu=2"}}}
		stdout, stderr, exit := run(t, c, "", acctConf(t), strings.Fields(tt.line)...)
		if stdout != tt.stdout || !strings.HasPrefix(stderr, tt.stderr) || tt.stderr == "" && stderr != "" || exit != tt.exit {
			t.Errorf("%s: exit %d\nstdout %q\nwant   %q\nstderr %q\nwant   %q", tt.line, exit, stdout, tt.stdout, stderr, tt.stderr)
		}
	}
}

// TestLiveRows: what nodes say of the steps of several jobs becomes one row a step, with the memory of now as the average.
func TestLiveRows(t *testing.T) {
	key := func(id uint32) *msg.StepKey { return &msg.StepKey{JobId: id, Step: pb.BatchStep} }
	rows := acct.LiveRows([]*msg.StepUsage{{Key: key(7), Node: "n1", RssKib: 1024, MaxRssKib: 4096, VmKib: 8192, MaxVmKib: 9216,
		PidList: []uint32{41, 42}}, {Key: key(8), Node: "n2", MaxRssKib: 1}}, nil)
	columns, err := acct.ParseLive("jobid,averss,maxrss,avevmsize,maxvmsize,pids,nodelist")
	if err != nil || len(rows) != 2 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	table := &acct.Table{Columns: columns, Parsable: true, Separator: "|"}
	if got := string(table.AppendRow(nil, &acct.Context{}, rows[0])); got != "7.batch|1M|4M|8M|9M|41,42|None assigned\n" &&
		got != "7.batch|1M|4M|8M|9M|41,42|n1\n" {
		t.Errorf("got %q", got)
	}
	if _, err := acct.ParseLive("bogus"); err == nil {
		t.Error("a field that does not exist is accepted")
	}
}

// TestSacctmgrChanges: what is sent for a line, and what is said of what was done. Without -i it is asked for first.
func TestSacctmgrChanges(t *testing.T) {
	gpus := []*pb.PolicyValue{{Name: "GrpTRES", Tres: "cpu", Value: ^uint64(0)}, {Name: "GrpTRES", Tres: "gres/gpu", Value: 4}}
	done := &pb.ChangePolicyReply{Names: []string{"lab"}, Assocs: []*pb.AssocRecord{{Account: "lab", Parent: "root"}}}
	for _, tt := range []struct {
		line, stdin, stdout string
		want                *pb.ChangePolicyRequest
		calls               int
	}{
		{line: "sacctmgr -i modify account name=lab set grptres=gres/gpu=4,cpu=-1 description=Our", calls: 1,
			want: &pb.ChangePolicyRequest{Verb: pb.PolicyVerb_POLICY_MODIFY, Names: []string{"lab"}, Set: []*pb.PolicySetting{
				{Name: "GrpTRES", Values: gpus}, {Name: "Description", Words: []string{"our"}}}},
			stdout: " Modified accounts...\n  lab\n Modified account associations...\n  C = compat     A = lab of root\n"},
		{line: "sacctmgr modify account lab set qos+=high,low", stdin: "maybe\ny\n", calls: 2,
			want: &pb.ChangePolicyRequest{Verb: pb.PolicyVerb_POLICY_MODIFY, Names: []string{"lab"}, Set: []*pb.PolicySetting{
				{Name: "QOS", Op: "+", Words: []string{"high", "low"}}}},
			stdout: " Modified accounts...\n  lab\n Modified account associations...\n  C = compat     A = lab of root\n" +
				"Would you like to commit changes? (You have 30 seconds to decide)\n(N/y): \nY or N please\n(N/y): \n"},
		{line: "sacctmgr -i modify account lab set limithours='mon,sat,8:00-20:00'", calls: 1,
			want: &pb.ChangePolicyRequest{Verb: pb.PolicyVerb_POLICY_MODIFY, Names: []string{"lab"}, Set: []*pb.PolicySetting{
				{Name: "LimitHours", Words: []string{"Mon,Sat 08:00-20:00"}}}},
			stdout: " Modified accounts...\n  lab\n Modified account associations...\n  C = compat     A = lab of root\n"},
		{line: "sacctmgr -i modify account lab set limithours=-1", calls: 1,
			want: &pb.ChangePolicyRequest{Verb: pb.PolicyVerb_POLICY_MODIFY, Names: []string{"lab"}, Set: []*pb.PolicySetting{
				{Name: "LimitHours", Words: []string{""}}}},
			stdout: " Modified accounts...\n  lab\n Modified account associations...\n  C = compat     A = lab of root\n"},
		{line: "sacctmgr -i modify account lab set deftime=90 defpartition=-1 defaultgputype=A100", calls: 1,
			want: &pb.ChangePolicyRequest{Verb: pb.PolicyVerb_POLICY_MODIFY, Names: []string{"lab"}, Set: []*pb.PolicySetting{
				{Name: "DefaultTime", Values: []*pb.PolicyValue{{Name: "DefaultTime", Value: 5400}}},
				{Name: "DefaultPartition", Words: []string{""}}, {Name: "DefaultGPUType", Words: []string{"A100"}}}},
			stdout: " Modified accounts...\n  lab\n Modified account associations...\n  C = compat     A = lab of root\n"},
		{line: "sacctmgr delete account lab", calls: 1,
			want: &pb.ChangePolicyRequest{Verb: pb.PolicyVerb_POLICY_DELETE, Names: []string{"lab"}, CheckOnly: true},
			stdout: " Deleting accounts...\n  lab\nWould you like to commit changes? (You have 30 seconds to decide)\n(N/y): \n" +
				" Changes Discarded\n"},
		{line: "sacctmgr delete account lab", stdin: "n\n", calls: 1,
			want: &pb.ChangePolicyRequest{Verb: pb.PolicyVerb_POLICY_DELETE, Names: []string{"lab"}, CheckOnly: true},
			stdout: " Deleting accounts...\n  lab\nWould you like to commit changes? (You have 30 seconds to decide)\n(N/y): \n" +
				" Changes Discarded\n"},
	} {
		c := &clienttest.Controller{PolicyReply: done}
		stdout, _, exit := run(t, c, tt.stdin, acctConf(t), strings.Fields(tt.line)...)
		if stdout != tt.stdout || exit != 0 || len(c.Updates) != tt.calls {
			t.Errorf("%s: exit %d, %d calls\nstdout %q\nwant   %q", tt.line, exit, len(c.Updates), stdout, tt.stdout)
			continue
		}
		if got := c.Updates[tt.calls-1].(proto.Message); !proto.Equal(got, tt.want) {
			t.Errorf("%s: sent %v, want %v", tt.line, got, tt.want)
		}
	}
}

// TestSacctmgrOwnSettings: settings that Slurm does not have are shown when asked for, and dumped so that they load again.
func TestSacctmgrOwnSettings(t *testing.T) {
	rows := []*pb.PolicyRow{{Account: &pb.AccountRecord{Name: "root"}}, {Account: &pb.AccountRecord{Name: "lab"}},
		{Assoc: &pb.AssocRecord{Id: 1, Account: "root"}}, {Qos: &pb.QosRecord{Id: 1, Name: "normal", LimitHours: "20:00-08:00"}},
		{Assoc: &pb.AssocRecord{Id: 3, Account: "lab", Parent: "root", LimitHours: "Mon-Fri 08:00-20:00,Sat 10:00-14:00",
			DefaultPartition: "Big", DefaultGpuType: "a100", Values: []*pb.PolicyValue{{Name: "DefaultTime", Value: 5400}}}}}
	file := t.TempDir() + "/out.cfg"
	for line, want := range map[string]string{
		"sacctmgr -nP show assoc format=account,limith":             "root|\nlab|Mon-Fri 08:00-20:00,Sat 10:00-14:00\n",
		"sacctmgr -nP show account lab withassoc format=limithours": "Mon-Fri 08:00-20:00,Sat 10:00-14:00\n",
		"sacctmgr -n show qos format=limithours":                    "                   20:00-08:00 \n",
		"sacctmgr -P show assoc format=account,deftime,defpart,defgpu": "Account|DefaultTime|DefaultPartition|DefaultGPUType\nroot|||\n" +
			"lab|01:30:00|Big|a100\n",
		"sacctmgr dump compat file=" + file: "",
	} {
		stdout, stderr, exit := run(t, &clienttest.Controller{PolicyRows: rows}, "", acctConf(t), strings.Fields(line)...)
		if stdout != want || exit != 0 {
			t.Errorf("%s: exit %d, %q, want %q; %s", line, exit, stdout, want, stderr)
		}
	}
	c := &clienttest.Controller{PolicyRows: rows, PolicyReply: &pb.ChangePolicyReply{}}
	run(t, c, "", acctConf(t), "sacctmgr", "-i", "load", file)
	lines := c.Updates[0].(*pb.ChangePolicyRequest).Lines
	set := lines[len(lines)-1].Set
	for _, want := range []*pb.PolicySetting{{Name: "LimitHours", Words: []string{"Mon-Fri 08:00-20:00,Sat 10:00-14:00"}},
		{Name: "DefaultPartition", Words: []string{"Big"}}, {Name: "DefaultGPUType", Words: []string{"a100"}},
		{Name: "DefaultTime", Values: []*pb.PolicyValue{{Name: "DefaultTime", Value: 5400}}}} {
		if !slices.ContainsFunc(set, func(s *pb.PolicySetting) bool { return proto.Equal(s, want) }) {
			t.Errorf("%v is not loaded: %v", want, lines)
		}
	}
}

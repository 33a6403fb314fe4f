package conf

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestWhatIsConstrained: with TaskPlugin what the files say holds, as cgroup.conf(5) and slurm.conf(5) have it; without it everything
// is constrained that cgroup.conf does not say no to.
func TestWhatIsConstrained(t *testing.T) {
	const constrainAll = "ConstrainCores=yes\nConstrainRAMSpace=yes\nConstrainDevices=yes\n"
	for _, c := range []struct{ slurm, cgroup, want, advice string }{
		{"", "", "cores ram devices", "TaskPlugin is not set: jobs are confined to the cores, memory and devices that they request"},
		{"", "ConstrainRAMSpace=no\n", "cores devices", ""},
		{"", "ConstrainRAMSpace=yes\nConstrainCores=no\n", "ram devices", ""},
		{"TaskPlugin=task/none\n", "", "",
			"write TaskPlugin=task/affinity,task/cgroup, and ConstrainRAMSpace=yes, ConstrainCores=yes, ConstrainDevices=yes in " +
				"cgroup.conf"},
		{"TaskPlugin=task/none\n", constrainAll, "", "write TaskPlugin=task/affinity,task/cgroup)"},
		{"TaskPlugin=task/none\n", "ConstrainSwapSpace=yes\n", "",
			"jobs may use more memory than they request, each other's cores, each other's GPUs"},
		{"TaskPlugin=task/affinity\n", constrainAll, "cores", "jobs may use more memory than they request, each other's GPUs"},
		{"TaskPlugin=cgroup\n", "", "", "add ConstrainRAMSpace=yes, ConstrainCores=yes, ConstrainDevices=yes to cgroup.conf"},
		{"TaskPlugin=task/cgroup\n", "ConstrainRAMSpace=yes\n", "ram", "add ConstrainCores=yes, ConstrainDevices=yes to cgroup.conf"},
		{"TaskPlugin=affinity,cgroup\n", constrainAll, "cores ram devices", ""},
		{"TaskPlugin=task/cgroup,task/affinity\n", "ConstrainRAMSpace=no\n", "cores", "more memory than they request"},
		{"TaskPlugin=task/cgroup\n", "ConstrainSwapSpace=yes\nAllowedSwapSpace=20\nAllowedRAMSpace=50\n", "ram swap",
			"add ConstrainCores=yes, ConstrainDevices=yes to cgroup.conf"},
		{"TaskPlugin=task/none\nJobAcctGatherParams=OverMemoryKill\nJobAcctGatherType=jobacct_gather/linux\n", "", "ram",
			"each other's cores"},
		{"TaskPlugin=task/none\nJobAcctGatherParams=OverMemoryKill\n", "", "", "each other's cores"}, // nothing gathers
	} {
		slurm := c.slurm + strings.TrimSuffix(good, "\n") + " DefMemPerCPU=250 DefaultTime=60\n"
		got, err := Load("/etc/slurm.conf", files{"slurm.conf": slurm, "cgroup.conf": c.cgroup}.options())
		if err != nil {
			t.Errorf("%q: %v", c.slurm, err)
			continue
		}
		var on []string
		for _, r := range []struct {
			name string
			on   bool
		}{{"cores", got.Cgroup.ConstrainCores}, {"ram", got.Cgroup.ConstrainRAMSpace}, {"swap", got.Cgroup.ConstrainSwapSpace},
			{"devices", got.Cgroup.ConstrainDevices}} {
			if r.on {
				on = append(on, r.name)
			}
		}
		if strings.Join(on, " ") != c.want {
			t.Errorf("%q and %q constrain %v, want %s", c.slurm, c.cgroup, on, c.want)
		}
		if advice := got.Advice.Error(); (c.advice == "") != (advice == "") || !strings.Contains(advice, c.advice) {
			t.Errorf("%q and %q: advice %q, want %q", c.slurm, c.cgroup, advice, c.advice)
		}
		if c.want == "ram swap" && (got.Cgroup.AllowedRAMPercent != 120 || got.Cgroup.AllowedSwapPercent != 0) {
			t.Errorf("%q: RAM %v%%, swap %v%%; want 120 and 0: memory and swap have one limit", c.cgroup, got.Cgroup.AllowedRAMPercent,
				got.Cgroup.AllowedSwapPercent)
		}
	}
}

// TestAdviceAboutDefaults: a partition whose jobs keep others out when they say neither --mem nor --time is named.
func TestAdviceAboutDefaults(t *testing.T) {
	const nodes = head + "TaskPlugin=task/none\nNodeName=n1 CPUs=4 RealMemory=8000 MemSpecLimit=400\nNodeName=n2 CPUs=2 RealMemory=6000\n"
	const whole, endless = "a job without --mem takes all memory of its nodes, and no other job fits there: ",
		"a job without --time has no time limit: "
	for _, c := range []struct{ text, want string }{
		{nodes + "PartitionName=p Nodes=ALL\n", whole + "partition p (set DefMemPerCPU=1900, the memory per CPU that every node has)|" +
			endless + "partition p (set DefaultTime)"},
		{nodes + "PartitionName=p Nodes=ALL MaxTime=60\nPartitionName=q Nodes=n1 DefaultTime=60\n", whole + "partitions p, q ("},
		{nodes + "DefMemPerNode=100\nPartitionName=p Nodes=ALL MaxTime=60\n", ""},
		{nodes + "PartitionName=p Nodes=ALL MaxTime=60 DefMemPerCPU=100\n", ""},
		{nodes + "PartitionName=p Nodes=ALL MaxTime=60 OverSubscribe=EXCLUSIVE\n", ""},
		{nodes + "DefMemPerGPU=100\nPartitionName=p Nodes=ALL MaxTime=60\n", whole}, // other jobs get no less
		{nodes + "SelectTypeParameters=CR_Core\nPartitionName=p Nodes=ALL MaxTime=60\n", ""},
		{head + "TaskPlugin=task/none\nMaxNodeCount=9\nPartitionName=p Nodes=ALL MaxTime=60\n",
			"set DefMemPerCPU to the memory of a node in MiB, divided by its CPUs"},
	} {
		var got []string
		for _, a := range mustLoad(t, c.text).Advice {
			if !strings.Contains(a.Msg, "jobs may use") { // what is constrained
				got = append(got, strings.TrimPrefix(a.Error(), "/etc/slurm.conf: "))
			}
		}
		want := strings.Split(c.want, "|")
		if c.want == "" {
			want = nil
		}
		if !slices.EqualFunc(got, want, strings.Contains) {
			t.Errorf("%s\nadvice %q, want %q", c.text, got, want)
		}
	}
}

// TestCgroupPairs: the section of a real Slurm 22.05 that had these files.
func TestCgroupPairs(t *testing.T) {
	const want = `AllowedKmemSpace        = (null)
AllowedRAMSpace         = 100.0%
AllowedSwapSpace        = 10.5%
CgroupAutomount         = no
CgroupMountpoint        = /sys/fs/cgroup
CgroupPlugin            = cgroup/v1
ConstrainCores          = no
ConstrainDevices        = no
ConstrainKmemSpace      = no
ConstrainRAMSpace       = yes
ConstrainSwapSpace      = no
IgnoreSystemd           = no
IgnoreSystemdOnFailure  = no
MaxKmemPercent          = 100.0%
MaxRAMPercent           = 100.0%
MaxSwapPercent          = 100.0%
MemorySwappiness        = (null)
MinKmemSpace            = 30 MB
MinRAMSpace             = 40 MB
`
	f := files{"slurm.conf": good + "TaskPlugin=task/cgroup\n",
		"cgroup.conf": "CgroupPlugin=cgroup/v1\nConstrainRAMSpace=yes\nAllowedSwapSpace=10.5\nMinRAMSpace=40\n"}
	c, err := Load("/etc/slurm.conf", f.options())
	if err != nil || formatPairs(c.CgroupPairs()) != want {
		t.Errorf("%v\n%s", err, formatPairs(c.CgroupPairs()))
	}
	if c := mustLoad(t, good+"TaskPlugin=task/none\nProctrackType=proctrack/linuxproc\n"); c.CgroupPairs() != nil {
		t.Errorf("nothing is constrained, and shown: %v", c.CgroupPairs())
	}
}

// TestWords: words of lists that are misspelt are told, with what was meant, and so are those that have no effect.
func TestWords(t *testing.T) {
	c := mustLoad(t, good+`TaskPlugin=affinity,groups
SchedulerParameters=bf_continue,bf_max_jobtest=100,bf_interval=30,BF_MAX_JOB_USER=3,placement=fgd
SlurmctldParameters=enable_configles,rl_enable
SlurmdParameters=config_overide,gpu_uuids
LaunchParameters=use_interactive_step,frobnicate,test_exec
PrologFlags=Aloc,Contain,X11
PriorityFlags=MAX_TRESS
PreemptParameters=youngest
TaskPluginParam=Autobind=threads,coers
AccountingStoreFlags=job_scripts,job_env
PrivateData=jobs,usage,users,user
DebugFlags=Backfil,Gres
JobContainerType=job_container/tmpf
JobAcctGatherParams=OverMemoryKil
SelectTypeParameters=CR_Core_Memory,CR_ONE_TASK_PER_CORE,CR_Cores
AccountingStorageEnforce=limit
DependencyParameters=kill_invalid_depends
TopologyParam=TopoOptionl
`)
	var got []string
	for _, w := range c.Warnings {
		got = append(got, w.Msg+" ("+w.Help+")")
	}
	want := []string{
		"TaskPlugin: unknown word groups (did you mean cgroup?)",
		"SchedulerParameters: unknown word bf_max_jobtest (did you mean bf_max_job_test?)",
		"SlurmctldParameters: unknown word enable_configles (did you mean enable_configless?)",
		"SlurmdParameters: unknown word config_overide (did you mean config_overrides?)",
		"LaunchParameters: unknown word frobnicate (it has no effect; is it from a newer Slurm?)",
		"PrologFlags: unknown word Aloc (did you mean Alloc?)",
		"PriorityFlags: unknown word MAX_TRESS (did you mean MAX_TRES?)",
		"PreemptParameters: unknown word youngest (it has no effect; is it from a newer Slurm?)",
		"TaskPluginParam: unknown word coers (did you mean Cores?)",
		"AccountingStoreFlags: unknown word job_scripts (did you mean job_script?)",
		"PrivateData: unknown word user (did you mean users?)",
		"DebugFlags: unknown word Backfil (did you mean Backfill?)",
		"JobContainerType: unknown word job_container/tmpf (did you mean tmpfs?)",
		"JobAcctGatherParams: unknown word OverMemoryKil (did you mean OverMemoryKill?)",
		"SelectTypeParameters: unknown word CR_Cores (did you mean CR_Core?)",
		"AccountingStorageEnforce: unknown word limit (did you mean limits?)",
		"DependencyParameters: unknown word kill_invalid_depends (did you mean kill_invalid_depend?)",
		"TopologyParam: unknown word TopoOptionl (did you mean TopoOptional?)",
	}
	if !slices.Equal(got, want) {
		t.Errorf("warnings:\n%s", strings.Join(got, "\n"))
	}
	var vain []string
	for _, i := range c.Ignored {
		vain = append(vain, i.Key)
	}
	for _, want := range []string{"SchedulerParameters=bf_continue,bf_interval=30", "SlurmctldParameters=rl_enable",
		"LaunchParameters=test_exec", "PrologFlags=X11", "TaskPluginParam=Autobind=threads", "PrivateData=users", "DebugFlags=Gres",
		"SelectTypeParameters=CR_ONE_TASK_PER_CORE"} {
		if !slices.Contains(vain, want) {
			t.Errorf("%s is not named among %q", want, vain)
		}
	}
}

// TestOnThisMachine: programs and groups that are not there are named; programs of keys without effect are not looked for.
func TestOnThisMachine(t *testing.T) {
	dir := t.TempDir()
	plain, run := filepath.Join(dir, "plain"), filepath.Join(dir, "run")
	for path, mode := range map[string]os.FileMode{plain: 0o644, run: 0o755} {
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	c := mustLoad(t, "SlurmUser=nosuchuser\n"+strings.Replace(good, "PartitionName=p", "PartitionName=p AllowGroups=root,nosuchgroup", 1)+
		"Prolog="+dir+"/nosuch\nEpilog="+plain+"\nTaskProlog="+run+"\nTaskEpilog=epilog.sh\nMailProg="+dir+"\nRebootProgram=\""+run+
		" -f\"\nResvProlog=/nosuch\n")
	got := strings.ReplaceAll(c.OnThisMachine().Error(), dir, "DIR")
	want := `/etc/slurm.conf:1: SlurmUser=nosuchuser is not a user on this machine (create the user; the controller does not start without it)
/etc/slurm.conf:5: partition p: AllowGroups names nosuchgroup, which is not a group on this machine (create the group, or remove the name, which admits nobody)
/etc/slurm.conf:6: Prolog=DIR/nosuch: no such file or directory (without it no job starts on a node; it must exist on every node)
/etc/slurm.conf:7: Epilog=DIR/plain: it is not executable; chmod +x (a node without it is drained after its first job; it must exist on every node)
/etc/slurm.conf:9: TaskEpilog=epilog.sh: the path is not absolute (it is not run; it must exist on every node)
/etc/slurm.conf:10: MailProg=DIR: it is a directory (no mail is sent)`
	if got != want {
		t.Errorf("OnThisMachine:\n%s\nwant\n%s", got, want)
	}
	c = mustLoad(t, good+"Prolog="+dir+"/*.sh\nEpilog="+dir+"/r*\n")
	if got := c.OnThisMachine(); len(got) != 1 || !strings.Contains(got[0].Msg, "no file matches") {
		t.Errorf("patterns: %v", got)
	}
}

func TestPropagatedLimits(t *testing.T) {
	for line, want := range map[string]string{
		"":                                   "ALL",
		"PropagateResourceLimits=NONE":       "NONE",
		"PropagateResourceLimits=CORE,STACK": "CORE,STACK",
		"PropagateResourceLimitsExcept=memlock,RLIMIT_AS": "CORE,CPU,DATA,FSIZE,NOFILE,NPROC,RSS,STACK",
		"PropagateResourceLimitsExcept=ALL":               "NONE",
	} {
		if got := mustLoad(t, good+line+"\n").PropagatedLimits(); got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
	if _, err := Load("/etc/slurm.conf", files{"slurm.conf": good + "PropagateResourceLimits=MEMLOK\n"}.options()); err == nil {
		t.Error("a name that is no limit is accepted")
	}
}

// TestFaultsDoNotHide: what else there is to say of a configuration is said beside its faults.
func TestFaultsDoNotHide(t *testing.T) {
	c, err := Load("/etc/slurm.conf", files{"slurm.conf": good + "AuthType=auth/munge\nKillWait=x\n"}.options())
	if err == nil || c == nil || len(c.Ignored) != 1 || c.Ignored[0].Key != "AuthType" {
		t.Errorf("%v: %+v", err, c)
	}
}

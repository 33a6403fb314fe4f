package conf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/conf/timespec"
)

// files reads from memory; a file that is not in it does not exist.
type files map[string]string

func (f files) options() Options {
	return Options{ReadFile: func(path string) ([]byte, error) {
		if text, ok := f[filepath.Base(path)]; ok {
			return []byte(text), nil
		}
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}}
}

func load(text string) (*Config, error) {
	return Load("/etc/slurm.conf", files{"slurm.conf": text}.options())
}

// head begins a configuration that has nothing else wrong.
const head = "ClusterName=c\nSlurmctldHost=h\n"

// good is a whole small configuration.
const good = head + "NodeName=n[1-2] CPUs=4 RealMemory=1000\nPartitionName=p Nodes=ALL Default=YES\n"

func mustLoad(t *testing.T, text string) *Config {
	t.Helper()
	c, err := load(text)
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	return c
}

// TestRealConfigurations loads what was given to a real Slurm.
func TestRealConfigurations(t *testing.T) {
	for dir, want := range map[string]struct{ nodes, cpus, partitions int }{
		"full": {6, 32, 3}, "bench": {6, 384, 3}, "minimal": {2, 2, 1}, "rich": {3, 16, 2},
	} {
		c, err := Load(filepath.Join("testdata", dir, "slurm.conf"), Options{})
		if err != nil {
			t.Errorf("%s: %v", dir, err)
			continue
		}
		cpus := 0
		for _, n := range c.Nodes {
			cpus += n.CPUs
		}
		if len(c.Nodes) != want.nodes || cpus != want.cpus || len(c.Partitions) != want.partitions {
			t.Errorf("%s: %d nodes, %d CPUs, %d partitions, want %v", dir, len(c.Nodes), cpus, len(c.Partitions), want)
		}
	}
}

func TestFullConfiguration(t *testing.T) {
	c, err := Load("testdata/full/slurm.conf", Options{})
	if err != nil {
		t.Fatal(err)
	}
	n, _ := c.Node("n3")
	if n.Hostname != "head" || n.Addr != "127.0.0.1" || n.Port != 27823 || n.CPUs != 4 || n.Sockets != 1 || n.CoresPerSocket != 4 ||
		n.RealMemoryMiB != 4000 || !slices.Equal(n.Features, []string{"cpu", "intel"}) {
		t.Errorf("n3 is %+v", n)
	}
	g, _ := c.Node("g2")
	if g.Port != 27826 || g.Gres[0].String() != "gpu:a100:2" {
		t.Errorf("g2 is %+v", g)
	}
	if NodePath(c.SlurmdSpoolDir, g) != "/var/spool/lab/spool/g2" {
		t.Errorf("spool of g2 is %s", NodePath(c.SlurmdSpoolDir, g))
	}
	lines := c.GresOf("g1")
	if len(lines) != 1 || lines[0].Count != 2 || lines[0].Files[1] != "/var/spool/lab/dev/gpu1" || len(c.GresOf("n1")) != 0 {
		t.Errorf("gres of g1: %+v, of n1: %+v", lines, c.GresOf("n1"))
	}
	if c.Cgroup.CgroupPlugin != "cgroup/v1" || !c.Cgroup.Given("cgroupplugin") || c.Cgroup.Given("ConstrainCores") {
		t.Errorf("cgroup.conf: %+v", c.Cgroup)
	}
	p := c.partition["debug"]
	if !p.Default || p.MaxTimeMin != 1440 || p.DefaultTimeMin != 30 ||
		!slices.Equal(p.Nodes, []string{"n1", "n2", "n3", "n4"}) {
		t.Errorf("debug is %+v", p)
	}
	if c.SchedulerParameters.Int("bf_interval", 30) != 2 || c.SchedulerParameters.Has("bf_continue") || c.KillWaitSec != 5 ||
		c.PriorityDecayHalfLifeMin != 1440 || c.DefMemPerCPUMiB != 100 || !c.SlurmdParameters.Has("config_overrides") {
		t.Errorf("configuration: %+v", c)
	}
	if len(c.Warnings) > 0 {
		t.Errorf("warnings: %v", c.Warnings)
	}
	var ignored []string
	for _, i := range c.Ignored {
		ignored = append(ignored, i.Key)
		if !strings.HasPrefix(i.String(), "ignored: "+i.Key+" — ") || len(i.Why) < 10 {
			t.Errorf("%s has no reason", i.Key)
		}
	}
	for _, want := range []string{"AuthType", "AuthInfo", "CryptoType", "SwitchType", "AccountingStorageHost"} {
		if !slices.Contains(ignored, want) {
			t.Errorf("%s is not among the ignored keys %v", want, ignored)
		}
	}
}

// fillers are the pairs whose value depends on the machine or the version.
var fillers = regexp.MustCompile(`^(Configuration data|Slurmctld\(|$|PluginDir |BOOT_TIME |AuthInfo |SLURM_CONF |SlurmdPidFile )`)

// TestPairsAsScontrol holds Pairs against `scontrol show config` of a real
// Slurm that had the same slurm.conf.
func TestPairsAsScontrol(t *testing.T) {
	different := map[string]string{ // where Sluice differs on purpose
		"minimal SelectType":           "select/cons_tres",
		"minimal SelectTypeParameters": "CR_CORE_MEMORY",
		"minimal TaskPlugin":           "task/cgroup", // what is in force
		"full AccountingStorageUser":   "root",
		"full MaxDBDMsgs":              "0",         // with slurmdbd it follows MaxJobCount
		"rich PriorityMaxAge":          "UNLIMITED", // Slurm prints 2^32-60 s
		"rich CommunicationParameters": null,        // Slurm moves it there from TopologyParam
	}
	for _, dir := range []string{"minimal", "full", "rich"} {
		c, err := Load(filepath.Join("testdata", dir, "slurm.conf"), Options{})
		if err != nil {
			t.Fatal(err)
		}
		rt := Runtime{NextJobID: c.FirstJobID, Version: "22.05.8"}
		var got []string
		for line := range strings.Lines(formatPairs(c.Pairs(rt))) {
			if !fillers.MatchString(line) {
				got = append(got, strings.TrimSuffix(line, "\n"))
			}
		}
		data, err := os.ReadFile(filepath.Join("testdata", dir, "scontrol-show-config.txt"))
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for line := range strings.Lines(string(data)) {
			if line = strings.TrimSuffix(line, "\n"); fillers.MatchString(line) {
				continue
			}
			name, _, _ := strings.Cut(line, " ")
			if v, ok := different[dir+" "+name]; ok {
				line = fmt.Sprintf("%-23s = %s", name, v)
			}
			want = append(want, line)
			if v, ok := different[dir+" "+name+"Parameters"]; ok {
				want = append(want, fmt.Sprintf("%-23s = %s", name+"Parameters", v))
			}
		}
		for i := range max(len(got), len(want)) {
			if i >= len(got) || i >= len(want) || got[i] != want[i] {
				t.Errorf("%s: line %d differs\n got %q\nwant %q", dir, i, at(got, i), at(want, i))
				break
			}
		}
	}
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(end)"
}

// TestEveryKeyOfTheManual: each key of slurm.conf(5) is known, in any case.
func TestEveryKeyOfTheManual(t *testing.T) {
	data, err := os.ReadFile("testdata/keys.txt")
	if err != nil {
		t.Fatal(err)
	}
	records := map[string]func(string) bool{
		"NodeName":      func(k string) bool { _, ok := nodeKeys()[k]; return ok },
		"PartitionName": func(k string) bool { _, ok := partitionKeys()[k]; return ok },
		"DownNodes":     func(k string) bool { _, ok := downNodesKeys()[k]; return ok },
		"NodeSet":       func(k string) bool { _, ok := nodeSetKeys()[k]; return ok },
	}
	n := 0
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if f[0] == "#" {
			continue
		}
		n++
		name := strings.ToLower(f[len(f)-1])
		_, known := keys()[name]
		if len(f) == 2 {
			known = records[f[0]](name)
		}
		if !known {
			t.Errorf("%s is not known", strings.TrimSpace(line))
		}
	}
	if n < 270 {
		t.Errorf("only %d keys in the list", n)
	}
	for name, k := range keys() {
		if k.set == nil && k.why == "" {
			t.Errorf("%s needs an effect, or a reason for having none", name)
		}
	}
}

func TestLoadSaysWhatIsMissing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "slurm.conf")
	_, err := Load(path, Options{})
	if err == nil || !strings.Contains(err.Error(), path+": no such file") || !strings.Contains(err.Error(), "SLURM_CONF") {
		t.Errorf("Load of no file: %v", err)
	}
}

// TestFaults: each configuration has exactly the faults that are listed.
func TestFaults(t *testing.T) {
	const p = "PartitionName=p Nodes=ALL Default=YES\n"
	const n = "NodeName=n[1-2] CPUs=4 RealMemory=1000\n"
	for name, c := range map[string]struct {
		text string
		want []string // after "/etc/slurm.conf"
	}{
		"empty": {"", []string{
			": ClusterName is missing (add ClusterName=mycluster)", ": SlurmctldHost is missing (add SlurmctldHost=host)",
			": no node is defined (add NodeName=name CPUs=…, or MaxNodeCount=n for nodes that join by themselves)",
			": no partition is defined (add PartitionName=debug Nodes=ALL Default=YES)"}},
		"cluster in a path": {strings.Replace(good, "ClusterName=c", "ClusterName=../c", 1), []string{
			":1: ClusterName: ../c is not made of letters, digits, '-', '_' and '.', the first one a letter, a digit or '_'"}},
		"cluster in two words": {strings.Replace(good, "ClusterName=c", `ClusterName="a b"`, 1), []string{
			":1: ClusterName: a b is not made of letters, digits, '-', '_' and '.', the first one a letter, a digit or '_'"}},
		"long cluster": {strings.Replace(good, "ClusterName=c", "ClusterName="+strings.Repeat("c", 65), 1), []string{
			":1: ClusterName: a name of 65 characters is longer than 64"}},
		"own parameter": {good + "SchedulerParameters=bf_policy=greedy\n",
			[]string{":5: SchedulerParameters: bf_policy=greedy is not one of easy, conservative"}},
		"own number": {good + "SchedulerParameters=bf_max_wait=3d\n",
			[]string{":5: SchedulerParameters: bf_max_wait=3d is not a whole number"}},
		"unknown key": {good + "MinJobAgee=5\n", []string{":5: unknown key MinJobAgee (did you mean MinJobAge?)"}},
		"foreign key": {good + "Zzzzzzzzzzzzzzzzz=5\n", []string{":5: unknown key Zzzzzzzzzzzzzzzzz"}},
		"removed key": {good + "AccountingStorageLoc=x\n",
			[]string{":5: AccountingStorageLoc is no longer a key (it was removed from Slurm; delete the line)"}},
		"removed long ago": {good + "CacheGroups=0\n",
			[]string{":5: CacheGroups is no longer a key (it was removed from Slurm; delete the line)"}},
		"node key": {head + "NodeName=n1 CPU=4\n" + p, []string{":3: unknown key CPU on a NodeName line (did you mean CPUs?)"}},
		"key of elsewhere": {head + n + "PartitionName=p Nodes=ALL SchedulerParameters=defer\n",
			[]string{":4: unknown key SchedulerParameters on a PartitionName line (it belongs on a line of its own)"}},
		"no value": {good + "MinJobAge\n",
			[]string{`:5: cannot read "MinJobAge" (write Key=value, and quotes around a value with blanks)`}},
		"empty value":  {good + "MinJobAge=\n", []string{":5: MinJobAge has no value (delete the line to use the default)"}},
		"not a number": {good + "MinJobAge=abc\n", []string{`:5: MinJobAge: "abc" is not a whole number`}},
		"negative":     {good + "MinJobAge=-5\n", []string{":5: MinJobAge: -5 is not between 0 and 2147483647"}},
		"not a choice": {good + "ReturnToService=7\n", []string{":5: ReturnToService: 7 is not between 0 and 2"}},
		"scheduler": {good + "SchedulerParameters=bf_window=x\n",
			[]string{":5: SchedulerParameters: bf_window=x is not a whole number"}},
		"plugin": {good + "SchedulerType=sched/backfil\n",
			[]string{`:5: SchedulerType: "sched/backfil" is not one of sched/backfill, sched/builtin (did you mean sched/backfill?)`}},
		"several at once": {head + n + "Foo=1\n" + p + "MinJobAge=x\nKillWait=y\n", []string{
			":4: unknown key Foo", `:6: MinJobAge: "x" is not a whole number`, `:7: KillWait: "y" is not a whole number`}},
		"CPUs": {head + "NodeName=n1 CPUs=5 Sockets=2 CoresPerSocket=2 ThreadsPerCore=2\n" + p, []string{
			":3: CPUs=5 contradicts 2 sockets with 2 cores of 2 threads (write CPUs=8 or leave it out)"}},
		"sockets twice": {head + "NodeName=n1 Sockets=2 SocketsPerBoard=2\n" + p,
			[]string{":3: Sockets and SocketsPerBoard are mutually exclusive (give one of them)"}},
		"node twice": {head + n + "NodeName=n2 Port=7000\n" + p,
			[]string{":4: node n2 is already defined at /etc/slurm.conf:3"}},
		"bad hostlist": {head + "NodeName=n[1- CPUs=4\n" + p,
			[]string{`:3: NodeName: cannot read hostlist "n[1-": at character 2: '[' without a ']'`}},
		"unknown node": {head + n + p + "PartitionName=q Nodes=n1,n3\n",
			[]string{":5: partition q names unknown node n3 (did you mean n1?)"}},
		"bad node is not unknown": {head + "NodeName=n[1-2] CPUs=x\n" + p + "PartitionName=q Nodes=n1\n",
			[]string{`:3: CPUs: "x" is not a whole number`}},
		"partition twice": {good + "PartitionName=p Nodes=n1\n",
			[]string{":5: partition p is already defined at /etc/slurm.conf:4 (put everything about it on one line)"}},
		"ports": {head + "NodeName=n[1-3] Port=[7001-7002]\n" + p,
			[]string{":3: Port has 2 values for 3 nodes (give one, or one for each node)"}},
		"addresses": {head + "NodeName=n[1-3] NodeAddr=x[1-2]\n" + p,
			[]string{":3: NodeAddr has 2 values for 3 nodes (give one, or one for each node)"}},
		"port": {head + "NodeName=n1 Port=70000\n" + p, []string{`:3: Port: "70000" is not a port number`}},
		"same address": {head + "NodeName=n[1-2] NodeAddr=h\n" + p, []string{
			":3: nodes n1 and n2 share the address h and port 6818 (give each a Port of its own, such as Port=[27821-27824])"}},
		"memory": {"DefMemPerCPU=1\nDefMemPerNode=2\n" + good,
			[]string{":2: DefMemPerCPU and DefMemPerNode are mutually exclusive (keep only one of them)"}},
		"part memory": {head + n + "PartitionName=p Nodes=ALL DefMemPerCPU=1 DefMemPerNode=1 Default=YES\n",
			[]string{":4: DefMemPerCPU and DefMemPerNode are mutually exclusive in partition p (keep only one of them)"}},
		"no CPUs": {head + n + "PartitionName=p Nodes=ALL MaxCPUsPerNode=0 Default=YES\n", []string{
			":4: partition p: MaxCPUsPerNode=0 leaves no CPU of a node to its jobs (write MaxCPUsPerNode=UNLIMITED, or leave it out)"}},
		"switch wait": {good + "SchedulerParameters=max_switch_wait=1:2:3:4\n",
			[]string{`:5: SchedulerParameters: max_switch_wait=1:2:3:4: cannot read duration "1:2:3:4": it has too many parts; ` +
				"write minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]] or UNLIMITED"}},
		"times": {head + n + "PartitionName=p Nodes=ALL MaxTime=10 DefaultTime=20 Default=YES\n", []string{
			":4: partition p: DefaultTime=00:20:00 is longer than MaxTime=00:10:00"}},
		"node counts": {head + n + "PartitionName=p Nodes=ALL MinNodes=5 MaxNodes=2\n",
			[]string{":4: partition p: MinNodes=5 is larger than MaxNodes=2"}},
		"bad time": {head + n + "PartitionName=p Nodes=ALL MaxTime=abc\n",
			[]string{`:4: MaxTime: cannot read duration "abc": "abc" is not a number; write minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]] or UNLIMITED`}},
		"bad state": {head + n + "PartitionName=p Nodes=ALL State=FOO\n",
			[]string{`:4: State: "FOO" is not one of UP, DOWN, DRAIN, INACTIVE`}},
		"bad bool": {head + n + "PartitionName=p Nodes=ALL Default=MAYBE\n", []string{`:4: Default: "MAYBE" is neither YES nor NO`}},
		"bad default": {head + "NodeName=DEFAULT CPUs=x\nNodeName=n1\nNodeName=n2 Port=1\n" + p,
			[]string{`:3: CPUs: "x" is not a whole number`}},
		"host twice": {head + "SlurmctldHost=h\n" + n + p, []string{":3: SlurmctldHost: h is given twice"}},
		"down nodes": {good + "DownNodes=n7 State=DOWN\n", []string{":5: DownNodes names unknown node n7 (did you mean n1?)"}},
		"quote":      {good + "Prolog=\"/a b\n", []string{":5: Prolog: the value has an opening quote without a closing one"}},
		"control":    {good + "Prolog=a\x1bb\n", []string{":5: Prolog: the value has the control character 0x1b"}},
		"include": {good + "Include nowhere.conf\n",
			[]string{":5: cannot include /etc/nowhere.conf: file does not exist (relative names start at the directory of slurm.conf)"}},
		"suspend": {good + "PreemptType=preempt/qos\nPreemptMode=SUSPEND\n",
			[]string{":6: SUSPEND needs GANG (write PreemptMode=SUSPEND,GANG)"}},
		"preempt": {good + "PreemptType=preempt/qos\n",
			[]string{":5: PreemptType=preempt/qos contradicts PreemptMode=OFF (set PreemptMode=CANCEL, REQUEUE or SUSPEND,GANG)"}},
		"spec cores": {head + "NodeName=n1 CPUs=2 CoreSpecCount=2\n" + p,
			[]string{":3: CoreSpecCount=2 leaves none of 2 cores to jobs"}},
		"alternate": {head + n + "PartitionName=p Nodes=ALL Alternate=q Default=YES\n",
			[]string{":4: partition p: Alternate=q does not exist"}},
		"node set name": {good + "NodeSet=n1 Feature=x\n",
			[]string{":5: node set n1 has the name of the node at /etc/slurm.conf:3 (rename one of them)"}},
		"front end": {good + "FrontendName=f\n", []string{":5: FrontendName is no longer a key (front-end nodes are not supported)"}},
	} {
		_, err := load(c.text)
		var faults Faults
		if !errors.As(err, &faults) {
			t.Errorf("%s: %v, want faults", name, err)
			continue
		}
		want := "/etc/slurm.conf" + strings.Join(c.want, "\n/etc/slurm.conf")
		if err.Error() != want {
			t.Errorf("%s:\n got %s\nwant %s", name, err, want)
		}
		var one Fault
		if !errors.As(err, &one) || one.File != "/etc/slurm.conf" {
			t.Errorf("%s: no Fault can be taken out of it", name)
		}
	}
}

func TestGrammar(t *testing.T) {
	c := mustLoad(t, `# comment
clustername = lab	# behind a value
SLURMCTLDHOST=head(10.0.0.1)
SlurmctldHost=spare
KillWait=7 MinJobAge=8
SchedulerParameters=bf_continue,\
bf_window=60
NodeName=DEFAULT CPUs=2 \
  RealMemory=2048 Feature=a
NodeName=n[1-2] Reason="a #1 disk"
NodeName=DEFAULT RealMemory=4G
NodeName=n3 Feature=b NodeHostname=n3.lab NodeAddr=10.0.0.3 Port=7000
PartitionName=DEFAULT State=DOWN MaxTime=1-0
NodeSet=bs Feature=b
PartitionName=p nodes=n2,bs,n2 Default=yes
PartitionName=DEFAULT MaxTime=2-0
PartitionName=q Nodes= State=UP
DownNodes=n1 State=DRAIN Reason="disk \#2"
`)
	if c.ClusterName != "lab" || len(c.SlurmctldHosts) != 2 || c.SlurmctldHosts[0] != (Host{"head", "10.0.0.1"}) ||
		c.SlurmctldHosts[1].String() != "spare" {
		t.Errorf("cluster %q, hosts %v", c.ClusterName, c.SlurmctldHosts)
	}
	if c.KillWaitSec != 7 || c.MinJobAgeSec != 8 || c.SchedulerParameters.Int("bf_window", 0) != 60 ||
		!c.SchedulerParameters.Has("BF_CONTINUE") {
		t.Errorf("KillWait %d, MinJobAge %d, SchedulerParameters %s", c.KillWaitSec, c.MinJobAgeSec, c.SchedulerParameters)
	}
	n1, _ := c.Node("n1")
	n2, _ := c.Node("n2")
	n3, _ := c.Node("n3")
	if n1.CPUs != 2 || n1.RealMemoryMiB != 2048 || n1.State != "DRAIN" || n1.Reason != "disk #2" || n2.Reason != "a #1 disk" ||
		n1.Port != 6818 {
		t.Errorf("n1 is %+v, n2 is %+v", n1, n2)
	}
	if n3.CPUs != 2 || n3.RealMemoryMiB != 4096 || !slices.Equal(n3.Features, []string{"b"}) || n3.Hostname != "n3.lab" ||
		n3.Addr != "10.0.0.3" || n3.Port != 7000 || n3.Line != 12 {
		t.Errorf("n3 is %+v", n3)
	}
	p := c.partition["p"]
	q := c.partition["q"]
	if !slices.Equal(p.Nodes, []string{"n2", "n3"}) || p.State != "DOWN" || p.MaxTimeMin != 1440 || !p.Default || q.State != "UP" ||
		len(q.Nodes) != 0 || q.MaxTimeMin != 2880 {
		t.Errorf("p is %+v, q is %+v", p, q)
	}
}

func TestNodeShapes(t *testing.T) {
	for in, want := range map[string][4]int{ // sockets, cores, threads, CPUs
		"":       {1, 1, 1, 1},
		"CPUs=4": {4, 1, 1, 4},
		"CPUs=8 CoresPerSocket=2 ThreadsPerCore=2":           {2, 2, 2, 8},
		"Sockets=2 CoresPerSocket=4":                         {2, 4, 1, 8},
		"Sockets=2 CoresPerSocket=2 ThreadsPerCore=2 CPUs=4": {2, 2, 2, 4},
		"Boards=2 SocketsPerBoard=2 CoresPerSocket=3":        {4, 3, 1, 12},
		"Boards=2 Sockets=2":                                 {4, 1, 1, 4},
		"Procs=2":                                            {2, 1, 1, 2},
	} {
		c, err := load(head + "NodeName=n1 " + in + "\nPartitionName=p Nodes=ALL\n")
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		n := c.Nodes[0]
		if got := [4]int{n.Sockets, n.CoresPerSocket, n.ThreadsPerCore, n.CPUs}; got != want {
			t.Errorf("%s is %v, want %v", in, got, want)
		}
	}
}

func TestPartitionKeys(t *testing.T) {
	c := mustLoad(t, head+`NodeName=n1
PartitionName=a Nodes=n1 AllowGroups=x,y AllowAccounts=ALL DenyQos=z PriorityTier=5 OverSubscribe=FORCE:3 GraceTime=30 MaxNodes=UNLIMITED MinNodes=1 LLN=YES MaxCPUsPerNode=3 DefMemPerCPU=100 MaxMemPerCPU=1G TRESBillingWeights="CPU=1.0,Mem=0.25G" JobDefaults=DefCpuPerGPU=2,DefMemPerGPU=100 ExclusiveUser=YES Hidden=YES RootOnly=YES ReqResv=YES PreemptMode=requeue QOS=big SuspendTime=INFINITE OverTimeLimit=3 Alternate=b
PartitionName=b Nodes=ALL Shared=NO
`)
	p, q := c.Partitions[0], c.Partitions[1]
	if !slices.Equal(p.AllowGroups, []string{"x", "y"}) || p.AllowAccounts != nil || p.OverSubscribe.String() != "FORCE:3" ||
		p.MaxNodes != timespec.Unlimited ||
		p.MaxMemPerCPUMiB != 1024 || p.BillingWeights[0].Value != 1 || p.DefCPUPerGPU != 2 || p.DefMemPerGPUMiB != 100 || !p.ReqResv ||
		p.PreemptMode[0] != "REQUEUE" || p.QOS != "big" || p.SuspendTimeSec != timespec.Unlimited || p.OverTimeLimitMin != 3 ||
		p.PriorityTier != 5 {
		t.Errorf("a is %+v", p)
	}
	if q.MaxTimeMin != timespec.Unlimited || q.DefaultTimeMin != NotSet || !q.AllNodes || q.OverSubscribe.String() != "NO" ||
		q.PriorityTier != 1 || q.SuspendTimeSec != NotSet {
		t.Errorf("b is %+v", q)
	}
}

// TestShownWithoutEffect: keys of partitions that are shown, and have no effect, are told among those that have none.
func TestShownWithoutEffect(t *testing.T) {
	c := mustLoad(t, good+"PartitionName=q Nodes=n1 MaxCPUsPerSocket=3 ExclusiveUser=YES MaxMemPerCPU=100\n")
	q := c.Partitions[len(c.Partitions)-1]
	if q.MaxCPUsPerSocket != 3 || !q.ExclusiveUser || len(c.Ignored) != 1 {
		t.Errorf("%+v, ignored: %v", q, c.Ignored)
	}
	for i, want := range []string{
		"ignored: PartitionName MaxCPUsPerSocket — CPUs are not limited by socket; set MaxCPUsPerNode",
	} {
		if i < len(c.Ignored) && c.Ignored[i].String() != want {
			t.Errorf("%s, want %s", c.Ignored[i], want)
		}
	}
}

// TestWarnings: what Slurm overrules with a word or none is accepted and told.
func TestWarnings(t *testing.T) {
	c := mustLoad(t, "MinJobAge=5\nMinJobAge=6\n"+good+"PartitionName=q Nodes=n1 Default=YES\n")
	want := "/etc/slurm.conf:2: MinJobAge was already set at /etc/slurm.conf:1; this value is used (delete one of the lines)\n" +
		"/etc/slurm.conf:7: partition q replaces p as the default (keep Default=YES on one of them)"
	if c.Warnings.Error() != want {
		t.Errorf("warnings: %v", c.Warnings)
	}
	if p := c.partition["q"]; !p.Default || c.MinJobAgeSec != 6 {
		t.Errorf("default partition %t, MinJobAge %d", p.Default, c.MinJobAgeSec)
	}
	c = mustLoad(t, head+"NodeName=n1 Gres=gpu:1\nPartitionName=p Nodes=ALL Default=YES\n")
	if c.Warnings.Error() != "/etc/slurm.conf:3: generic resource gpu is not one of GresTypes= (add it to GresTypes)" {
		t.Errorf("warnings: %v", c.Warnings)
	}
	if c := mustLoad(t, head+"NodeName=n1\nPartitionName=p Nodes=ALL\n"); !strings.Contains(c.Warnings.Error(),
		"no partition is the default") {
		t.Errorf("warnings: %v", c.Warnings)
	}
}

// TestLogTimeFormat: a value that means nothing here is told, and the rest of it counts.
func TestLogTimeFormat(t *testing.T) {
	const unknown = "/etc/slurm.conf:5: LogTimeFormat: unknown word iso (it has no effect; is it from a newer Slurm?)"
	const both = "/etc/slurm.conf:5: LogTimeFormat: short and clock are mutually exclusive; short is used (keep one of them)"
	for value, want := range map[string]struct{ format, warning string }{
		"ISO8601":                      {"iso8601", ""},
		`"Format_StdErr, short"`:       {"short,format_stderr", ""},
		"iso":                          {"", unknown},
		"iso,clock":                    {"clock", unknown},
		"short,Format_StdErr,clock":    {"short,format_stderr", both},
		"short,short":                  {"short", ""},
		"format_stderr,format_stderr,": {"format_stderr", ""},
	} {
		c := mustLoad(t, good+"LogTimeFormat="+value+"\n")
		if got := c.Warnings.Error(); c.LogTimeFormat != want.format || got != want.warning && (want.warning != "" || len(c.Warnings) > 0) {
			t.Errorf("%s: %q, want %q; warnings: %s", value, c.LogTimeFormat, want.format, got)
		}
	}
}

func TestInclude(t *testing.T) {
	f := files{
		"slurm.conf":     "ClusterName=lab\nInclude lab_nodes.conf\nInclude %c_parts.conf\nSlurmctldHost=h\n",
		"lab_nodes.conf": "NodeName=n1\nFoo=1\n",
		"lab_parts.conf": "PartitionName=p Nodes=ALL\nBar=1\n",
	}
	_, err := Load("/etc/slurm.conf", f.options())
	if want := "/etc/lab_nodes.conf:2: unknown key Foo\n/etc/lab_parts.conf:2: unknown key Bar"; err == nil || err.Error() != want {
		t.Errorf("Load: %v", err)
	}
	f["slurm.conf"], f["a.conf"] = good+"Include a.conf\n", "Include a.conf\nInclude a.conf\n"
	if _, err := Load("/etc/slurm.conf", f.options()); err == nil || !strings.Contains(err.Error(), "does a file include itself?") {
		t.Errorf("Load of a circle: %v", err)
	}
}

func TestControlMachine(t *testing.T) {
	c := mustLoad(t, strings.Replace(good, "SlurmctldHost=h", "ControlAddr=10.0.0.1\nControlMachine=h", 1))
	if len(c.SlurmctldHosts) != 1 || c.SlurmctldHosts[0] != (Host{"h", "10.0.0.1"}) {
		t.Errorf("hosts %v", c.SlurmctldHosts)
	}
	if c := mustLoad(t, good+"ControlMachine=old\n"); c.SlurmctldHosts[0].Name != "h" {
		t.Errorf("hosts %v", c.SlurmctldHosts)
	}
}

func TestGresConf(t *testing.T) {
	f := files{"slurm.conf": "GresTypes=gpu,mps\n" + good, "gres.conf": `AutoDetect=nvml
NodeName=n1 AutoDetect=off Name=gpu Type=a100 File=/dev/nvidia[0,2-3] Cores=0-3,8
NodeName=n[1-2] Name=mps Count=200 File=/dev/nvidia0
Name=gpu Type=1g.10gb MultipleFiles=/dev/nvidia-caps/nvidia-cap[12,21]
Name=gpu File=/dev/nvidia9 Links=-1,0,4 Flags=nvidia_gpu_env
NodeName=n1 Name=shard File=/dev/nvidia[8-9]
`}
	c, err := Load("/etc/slurm.conf", f.options())
	if err != nil {
		t.Fatal(err)
	}
	g := c.GresOf("n1")[1]
	if len(c.Gres) != 6 || c.Gres[5].Count != 0 || g.Count != 3 || g.Files[2] != "/dev/nvidia3" ||
		!slices.Equal(g.Cores, []int{0, 1, 2, 3, 8}) || g.AutoDetect != "off" {
		t.Errorf("gres.conf is %+v", c.Gres)
	}
	if len(c.GresOf("n2")) != 4 || c.Gres[2].Count != 200 || c.Gres[3].Count != 1 || !slices.Equal(c.Gres[4].Links, []int{-1, 0, 4}) ||
		c.GresFile != "/etc/gres.conf" {
		t.Errorf("gres.conf is %+v", c.Gres)
	}
	f["gres.conf"] = "Name=gpu Count=3 File=/dev/nvidia[0-1]\nName=fpga\nNmae=gpu\nName=gpu File=nvidia0\nFlags=CountOnly\nName=gpu " +
		"Cores=x\nName=gpu File=/a MultipleFiles=/b\n"
	_, err = Load("/etc/slurm.conf", f.options())
	want := `/etc/gres.conf:1: Count=3 contradicts 2 files (omit Count)
/etc/gres.conf:3: unknown key Nmae on a gres.conf line (did you mean Name?)
/etc/gres.conf:4: File nvidia0 is not an absolute path (write it as /dev/nvidia[0-3])
/etc/gres.conf:5: the line has no Name (add Name=gpu, for instance)
/etc/gres.conf:6: Cores: "x" is not a list of cores such as 0-3,8
/etc/gres.conf:7: MultipleFiles: cannot have both File and MultipleFiles`
	if err == nil || err.Error() != want {
		t.Errorf("faults:\n%v", err)
	}
}

func TestCgroupConf(t *testing.T) {
	f := files{"slurm.conf": good, "cgroup.conf": "ConstrainRAMSpace=no\nAllowedSwapSpace=10.5\nCgroupAutomount=yes\n"}
	c, err := Load("/etc/slurm.conf", f.options())
	if err != nil || c.Cgroup.ConstrainRAMSpace || !c.Cgroup.ConstrainCores || c.Cgroup.AllowedSwapPercent != 10.5 ||
		c.Cgroup.File != "/etc/cgroup.conf" ||
		len(c.Ignored) != 1 || c.Ignored[0].Key != "cgroup.conf CgroupAutomount" {
		t.Errorf("cgroup.conf is %+v, %v", c, err)
	}
	f["cgroup.conf"] = "ConstrainRAM=no\nMaxRAMPercent=NaN\n"
	if _, err := Load("/etc/slurm.conf", f.options()); err == nil || len(err.(Faults)) != 2 {
		t.Errorf("Load: %v", err)
	}
	if c := mustLoad(t, good); c.Cgroup.File != "" || len(c.Files) != 1 {
		t.Errorf("without cgroup.conf: %+v, files %v", c.Cgroup, c.Files)
	}
}

func TestNearest(t *testing.T) {
	for in, want := range map[string]string{"MaxJobCont": "MaxJobCount", "nodename": "NodeName", "SlurmdTimout": "SlurmdTimeout",
		"qqqqqqqq": ""} {
		if got := nearest(in, keyNames()); got != want {
			t.Errorf("nearest(%s) = %s, want %s", in, got, want)
		}
	}
}

func FuzzLoad(f *testing.F) {
	for _, dir := range []string{"full", "rich", "minimal"} {
		data, err := os.ReadFile(filepath.Join("testdata", dir, "slurm.conf"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data), "NodeName=n1 Name=gpu File=/dev/gpu[0-1]", "CgroupPlugin=cgroup/v1")
	}
	f.Add(good+"Include slurm.conf\n\\\n\"#", "AutoDetect=nvml\nCores=0-1", "AllowedRAMSpace=1")
	f.Fuzz(func(t *testing.T, slurm, gres, cgroup string) {

		c, err := Load("/slurm.conf", files{"slurm.conf": slurm, "gres.conf": gres, "cgroup.conf": cgroup}.options())
		if err != nil {
			if err.Error() == "" {
				t.Fatal("an error without words")
			}
			return
		}
		c.Pairs(Runtime{})
		for _, n := range c.Nodes {
			if n.CPUs < 1 || n.Port < 1 || n.Port > 65535 {
				t.Fatalf("node %+v", n)
			}
		}
		for _, p := range c.Partitions {
			for _, name := range p.Nodes {
				if _, ok := c.Node(name); !ok {
					t.Fatalf("partition %s has unknown node %s", p.Name, name)
				}
			}
		}
	})
}

// TestLinkedConfiguration: slurm.conf may be a link; what is not beside the link is beside what it links to.
func TestLinkedConfiguration(t *testing.T) {
	real, link := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{"slurm.conf": "Include nodes.conf\n" +
		strings.Replace(good, "NodeName", "NodeName=n9\nNodeName", 1), "nodes.conf": "KillWait=7\n",
		"cgroup.conf": "ConstrainCores=no\n", "gres.conf": "AutoDetect=nvml\n"} {
		if err := os.WriteFile(filepath.Join(real, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(link, "slurm.conf")
	if err := errors.Join(os.Symlink(filepath.Join(real, "slurm.conf"), path),
		os.WriteFile(filepath.Join(link, "gres.conf"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	c, err := Load(path, Options{})
	if err != nil || c.KillWaitSec != 7 || c.Cgroup.ConstrainCores || c.Cgroup.File != filepath.Join(real, "cgroup.conf") ||
		c.GresFile != filepath.Join(link, "gres.conf") || c.Path != path {
		t.Errorf("%v: %+v", err, c)
	}
}

// TestClusterNameIsSmall: Slurm 22.05 "started on cluster lab" with ClusterName=Lab.
func TestClusterNameIsSmall(t *testing.T) {
	f := files{"slurm.conf": "ClusterName=My_Lab-2.x\nSlurmctldHost=h\nNodeName=n1\nPartitionName=p Nodes=ALL\n"}
	c, err := Load("/slurm.conf", f.options())
	if err != nil || c.ClusterName != "my_lab-2.x" {
		t.Errorf("%v, %v", c, err)
	}
}

// formatPairs writes pairs as scontrol does, one a line.
func formatPairs(pairs []Pair) string {
	var b strings.Builder
	for _, p := range pairs {
		fmt.Fprintf(&b, "%-23s = %s\n", p.Key, p.Value)
	}
	return b.String()
}

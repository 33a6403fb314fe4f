package ctld

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-hpc/sluice/conf"
	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/internal/test/fieldtest"
)

// Why fields of slurm.conf are not in the state's configuration.
const (
	placeInFile = "where the line stands is for messages about the file"
	withoutEff  = "it has no effect, which conf says"
	nodesRead   = "the node daemon reads it"
)

// ofConf is the state's configuration without what is not data.
func ofConf(c *conf.Config) *state.Config {
	cfg := stateConfig(c, 1)
	cfg.GresOf = nil
	return cfg
}

// TestConfiguredNodesAreWhole: every node option of slurm.conf reaches the state's configuration.
func TestConfiguredNodesAreWhole(t *testing.T) {
	fieldtest.Shows(t, nil, func(n *conf.Node) any {
		if n.State != fieldtest.Filled[conf.Node]().State { // a value that is made up; the words are tried below
			n.State = "DOWN"
		}
		return ofConf(&conf.Config{Nodes: []*conf.Node{n}})
	}, fieldtest.LeftOut{
		"File": placeInFile, "Line": placeInFile, "BcastAddr": withoutEff, "CPUBind": withoutEff, "CPUSpecList": withoutEff,
		"Topology": withoutEff,
	})
	for _, word := range []string{"DOWN", "DRAIN", "FAIL", "FAILING", "FUTURE"} {
		if r, up := nodeRecord(&conf.Node{State: word}), nodeRecord(&conf.Node{State: "UNKNOWN"}); r.State == up.State &&
			r.StateFlags == up.StateFlags {
			t.Errorf("State=%s is as UNKNOWN", word)
		}
	}
}

// TestConfiguredPartitionsAreWhole: the same of a partition.
func TestConfiguredPartitionsAreWhole(t *testing.T) {
	power := "power saving is not there yet"
	fieldtest.Shows(t, func() *conf.Partition {
		p := fieldtest.Filled[conf.Partition]()
		p.OverSubscribe.Mode = "FORCE"
		return p
	}, func(p *conf.Partition) any {
		return ofConf(&conf.Config{Partitions: []*conf.Partition{p}})
	}, fieldtest.LeftOut{
		"File": placeInFile, "Line": placeInFile, "BillingWeights": "TRESBillingWeights has them as written",
		"CPUBind": withoutEff, "Topology": withoutEff, "ExclusiveTopo": withoutEff,
		"SuspendTimeSec": power, "SuspendTimeoutSec": power, "ResumeTimeoutSec": power,
	})
}

// everySetting has each key that is in the state's settings or the scheduler's parameters, with a value that is not the zero value there.
const everySetting = `ClusterName=c
SlurmctldHost=localhost
SlurmdUser=nobody
KillWait=1
OverTimeLimit=1
SlurmdTimeout=1
RebootProgram=/bin/true
MailDomain=example.org
ResumeTimeout=1
ReturnToService=1
MinJobAge=2
MaxJobCount=9
MaxNodeCount=9
MaxArraySize=9
JobRequeue=1
AccountingStorageTRES=gres/gpu
DefMemPerCPU=1
MaxMemPerCPU=1
DefMemPerGPU=1
DefCpuPerGPU=1
SlurmctldParameters=max_user_state=1
SlurmdParameters=gpu_fault=drain,config_overrides
SelectType=select/linear
SelectTypeParameters=CR_Core_Memory,CR_LLN
EnforcePartLimits=ALL
AccountingStorageEnforce=all
DisableRootJobs=YES
PriorityType=priority/basic
Licenses=a:1
TopologyPlugin=topology/tree
DependencyParameters=kill_invalid_depend
RequeueExit=1
RequeueExitHold=2
PrologSlurmctld=/bin/true
SuspendProgram=/bin/true
ResumeProgram=/bin/true
EpilogSlurmctld=/bin/true
SchedulerParameters=bf_max_job_test=1,bf_max_job_user=1,bf_reservations=1,bf_resolution=1,bf_window=1,bf_guard=1,bf_head_guard=1,bf_short_queue=1,bf_max_wait=1,bf_policy=conservative,bf_order=sjbf,placement=fgd,max_script_size=1000,max_switch_wait=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PreemptExemptTime=1
PriorityWeightAge=1
PriorityWeightFairshare=1
PriorityWeightJobSize=1
PriorityWeightPartition=1
PriorityWeightQOS=1
PriorityWeightAssoc=1
PriorityMaxAge=1
PriorityFavorSmall=YES
PriorityCalcPeriod=1
NodeName=n1 CPUs=1
PartitionName=p Nodes=n1
`

// TestSettingsAreWhole: each of the state's settings and each of the scheduler's parameters is read from slurm.conf.
func TestSettingsAreWhole(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"slurm.conf": everySetting, "topology.conf": "SwitchName=s Nodes=n1\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c, err := conf.Load(filepath.Join(dir, "slurm.conf"), conf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	// Of the limits on memory of a CPU and of a node a file can have one.
	c.DefMemPerNodeMiB, c.MaxMemPerNodeMiB = 1, 1
	fieldtest.Sets(t, settings(c, 1), fieldtest.LeftOut{
		"ConfSum": "of all files (hosts.go)", "BundleHash": "of all files (hosts.go)",
		"Switches.Level": "0 for the first, which is a leaf", "Switches.Switches": "a leaf has none"})
	p := schedParams(c)
	p.NoMemory = schedParams(&conf.Config{}).NoMemory
	fieldtest.Sets(t, &p, fieldtest.LeftOut{"Budget": "a bound that tests lower",
		"Weights.TRES": "PriorityWeightTRES has no effect, which conf says"})
}

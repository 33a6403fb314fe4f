package reactor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/conf/tres"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Partitions that are made and deleted while the controller runs (scontrol(1), create, delete, update PartitionName). A partition made so
// is kept in the state until it is deleted; a deleted partition of slurm.conf is back after the next reconfigure or restart.

// newPartition returns a partition with the defaults of slurm.conf(5).
func newPartition(name string) *pb.PartitionRecord {
	return &pb.PartitionRecord{Name: name, State: "UP", MaxTimeS: pb.Unlimited, MinNodes: 1, MaxNodes: pb.Unlimited,
		MaxCpusPerNode: pb.Unlimited, MaxCpusPerSocket: pb.Unlimited,
		PriorityTier: 1, PriorityJobFactor: 1, Oversubscribe: "NO", PreemptMode: "OFF", SelectTypeParameters: "NONE", Made: true}
}

// maxPartitionName bounds the length of names, maxPartitions the number of partitions.
const (
	maxPartitionName = 64
	maxPartitions    = 1000
)

func (c UpdatePartition) create(tx *state.Tx) any {
	switch {
	case tx.Partition(c.Name) != nil:
		return pb.NewProblem(pb.CodeInvalidPartition, "partition %q already exists", c.Name)
	case c.Name == "" || len(c.Name) > maxPartitionName || strings.ContainsAny(c.Name, " \t,=*[]()\"'/"):
		return pb.NewProblem(pb.CodeInvalidPartition, "%q is not a valid partition name", c.Name).WithHint("letters, digits, - and _")
	case strings.EqualFold(c.Name, "DEFAULT"):
		return pb.NewProblem(pb.CodeInvalidPartition, "DEFAULT stands for all partitions of slurm.conf")
	case len(tx.Partitions()) >= maxPartitions:
		return pb.NewProblem(pb.CodeInvalidPartition, "there are already %d partitions, the maximum", maxPartitions)
	}
	return c.change(tx, newPartition(c.Name), []string{})
}

func (c UpdatePartition) delete(tx *state.Tx) any {
	if tx.Partition(c.Name) == nil {
		return pb.NewProblem(pb.CodeInvalidPartition, "there is no partition %q", c.Name)
	}
	for j := range tx.Jobs().All() {
		if state.Active(j) && (j.Partition == c.Name || state.Pending(j) && slices.Contains(strings.Split(j.Spec.Partition, ","), c.Name)) {
			return pb.NewProblem(pb.CodePartitionInUse, "job %s is in it",
				state.JobName(j)).WithHint("scontrol update partitionname=%s state=drain, and delete it when its jobs have ended", c.Name)
		}
	}
	for _, r := range tx.Reservations() {
		if r.Partition == c.Name {
			return pb.NewProblem(pb.CodePartitionInUse, "reservation %s uses it", r.Name)
		}
	}
	tx.Emit(state.PartitionDeleted{Name: c.Name})
	return Outcomes{Seq: tx.Seq}
}

// change sets keys of p and stores it. nodes are its nodes, nil = unchanged.
func (c UpdatePartition) change(tx *state.Tx, p *pb.PartitionRecord, nodes []string) any {
	e := state.PartitionChanged{Partition: p, Nodes: nodes}
	for _, kv := range c.Set {
		key := strings.ToLower(kv.Key)
		var problem *pb.Problem
		switch {
		case strings.TrimRight(key, "+-") == "nodes":
			before := e.Nodes
			if before == nil {
				before = tx.PartitionNodes(p.Name)
			}
			e.Nodes, problem = partitionNodes(tx, before, key, kv.Value)
			if all := strings.EqualFold(kv.Value, "ALL"); all || key != "nodes+" { // as in the last assignment, also for later nodes
				p.AllNodes, p.NodeSets, p.SetFeatures = all && key != "nodes-", nil, nil
			}
		case strings.TrimRight(key, "+-") != key:
			problem = pb.NewProblem(pb.CodeNotSupported, "%s= can only be used with Nodes", kv.Key)
		case key == "allowgroups":
			if p.AllowGroups = kv.Value; kv.Value == "" || strings.EqualFold(kv.Value, "ALL") {
				p.AllowGroups = ""
			}
			e.GIDs, e.AllGroups, p.AllowGids = c.GIDs, p.AllowGroups == "", c.GIDs
		case key == "qos" && kv.Value != "" && tx.Settings().EnforceLimits && tx.Policy().QOS(strings.ToLower(kv.Value)) == nil:
			problem = pb.NewProblem(pb.CodeInvalidQOS, "there is no QOS %q", kv.Value).WithHint("sacctmgr show qos")
		default:
			problem = setPartition(p, kv.Key, kv.Value)
		}
		if problem != nil {
			return problem
		}
	}
	if e.Nodes != nil {
		e.Nodes = measure(tx, p, e.Nodes)
	}
	if other := tx.Partition(tx.DefaultPartition()); p.IsDefault && other != nil && other.Name != p.Name {
		was := state.ClonePartition(other)
		was.IsDefault = false
		tx.Emit(state.PartitionChanged{Partition: was})
	}
	tx.Emit(e)
	return Outcomes{Seq: tx.Seq}
}

// partitionNodes reads Nodes=, Nodes+= and Nodes-=.
func partitionNodes(tx *state.Tx, before []string, key, value string) ([]string, *pb.Problem) {
	named := []string{}
	if strings.EqualFold(value, "ALL") {
		for _, n := range tx.Nodes() {
			named = append(named, n.Name)
		}
	} else if value != "" {
		var err error
		if named, err = hostlist.Expand(value); err != nil {
			return nil, pb.NewProblem(pb.CodeInvalidNodeName, "%v", err)
		}
	}
	for _, n := range named {
		if tx.Node(n) == nil {
			return nil, pb.NewProblem(pb.CodeInvalidNodeName, "there is no node %q", n)
		}
	}
	switch {
	case strings.HasSuffix(key, "+"):
		return append(slices.Clone(before), named...), nil
	case strings.HasSuffix(key, "-"):
		return slices.DeleteFunc(append([]string{}, before...), func(n string) bool { return slices.Contains(named, n) }), nil
	}
	return named, nil
}

// measure computes the fields that follow from the nodes, and returns each node once, in the order of the configuration.
func measure(tx *state.Tx, p *pb.PartitionRecord, nodes []string) []string {
	have := make(map[string]bool, len(nodes))
	for _, n := range nodes {
		have[n] = true
	}
	list := []string{}
	p.TotalCpus = 0
	mem := uint64(0)
	for _, n := range tx.Nodes() {
		if have[n.Name] {
			list = append(list, n.Name)
			p.TotalCpus += n.Cpus
			mem += n.RealMemoryMib
		}
	}
	p.Nodes, p.TotalNodes, p.Tres = hostlist.FoldSorted(list), uint32(len(list)), ""
	if len(list) == 0 {
		return list
	}
	p.Tres = fmt.Sprintf("cpu=%d,mem=%s,node=%d,billing=%d", p.TotalCpus, tres.FormatMiB(mem), p.TotalNodes, p.TotalCpus)
	return list
}

// setMorePartition sets the less common keys.
func setMorePartition(p *pb.PartitionRecord, key, value string) *pb.Problem {
	list := func(dst *string) *pb.Problem {
		if *dst = value; strings.EqualFold(value, "ALL") {
			*dst = ""
		}
		return nil
	}
	switch strings.ToLower(key) {
	case "allowaccounts":
		return list(&p.AllowAccounts)
	case "allowqos":
		return list(&p.AllowQos)
	case "allocnodes":
		return list(&p.AllowAllocNodes)
	case "denyaccounts":
		return list(&p.DenyAccounts)
	case "denyqos":
		return list(&p.DenyQos)
	case "alternate":
		if p.Alternate = value; strings.EqualFold(value, "NONE") {
			p.Alternate = ""
		}
	case "qos":
		p.Qos = value
	case "tresbillingweights":
		if _, err := tres.ParseWeights(value); err != nil && value != "" {
			return pb.NewProblem(pb.CodeInvalidWeights, "%v", err)
		}
		p.TresBillingWeights = value
	case "jobdefaults":
		return setJobDefaults(p, value)
	case "default":
		return setBool(&p.IsDefault, key, value)
	case "disablerootjobs":
		return setBool(&p.DisableRootJobs, key, value)
	case "exclusiveuser":
		return setBool(&p.ExclusiveUser, key, value)
	case "reqresv":
		return setBool(&p.ReqResv, key, value)
	case "gracetime":
		return setCount(&p.GraceTimeS, key, value)
	case "overtimelimit":
		problem := setMinutes(&p.OverTimeLimitS, key, value)
		p.NoOverTime = p.OverTimeLimitS == 0
		return problem
	case "maxcpuspersocket":
		return setCount(&p.MaxCpusPerSocket, key, value)
	case "priority":
		if problem := setCount(&p.PriorityTier, key, value); problem != nil {
			return problem
		}
		p.PriorityJobFactor = p.PriorityTier
	case "preemptmode":
		return setPreemptMode(p, value)
	case "defmempercpu", "defmempernode", "maxmempercpu", "maxmempernode":
		return setPartitionMemory(p, key, value)
	default:
		return pb.NewProblem(pb.CodeNotSupported, "cannot set %s of a partition",
			key).WithHint("it is read from slurm.conf: scontrol reconfigure")
	}
	return nil
}

// setJobDefaults parses DefCpuPerGPU= and DefMemPerGPU=, separated by commas, in any case.
func setJobDefaults(p *pb.PartitionRecord, value string) *pb.Problem {
	var list []string
	for _, word := range strings.FieldsFunc(value, func(c rune) bool { return c == ',' }) {
		key, count, _ := strings.Cut(word, "=")
		_, err := strconv.ParseUint(count, 10, 32)
		at := slices.IndexFunc([]string{"DefCpuPerGPU", "DefMemPerGPU"}, func(k string) bool { return strings.EqualFold(k, key) })
		if err != nil || at < 0 {
			return pb.NewProblem(pb.CodeInvalidJobDefaults, "cannot read %q", word).WithHint("DefCpuPerGPU=count, DefMemPerGPU=megabytes")
		}
		list = append(list, []string{"DefCpuPerGPU", "DefMemPerGPU"}[at]+"="+count)
	}
	p.JobDefaults = strings.Join(list, ",")
	return nil
}

func setPreemptMode(p *pb.PartitionRecord, value string) *pb.Problem {
	for _, word := range strings.Split(strings.ToUpper(value), ",") {
		if !slices.Contains([]string{"OFF", "CANCEL", "REQUEUE", "SUSPEND", "GANG"}, word) {
			return pb.NewProblem(pb.CodeInvalidSpec, "PreemptMode=%s of a partition",
				value).WithHint("OFF, CANCEL, REQUEUE, SUSPEND or GANG")
		}
	}
	p.PreemptMode = strings.ToUpper(value)
	return nil
}

// setPartitionMemory sets one limit and clears the other of its pair, which excludes it.
func setPartitionMemory(p *pb.PartitionRecord, key, value string) *pb.Problem {
	var mib uint64
	if !strings.EqualFold(value, "unlimited") {
		var err error
		if mib, err = strconv.ParseUint(value, 10, 40); err != nil {
			return pb.NewProblem(pb.CodeInvalidMemory, "%s=%s is not a number of megabytes", key, value)
		}
	}
	switch strings.ToLower(key) {
	case "defmempercpu":
		p.DefMemPerCpuMib, p.DefMemPerNodeMib = mib, 0
	case "defmempernode":
		p.DefMemPerNodeMib, p.DefMemPerCpuMib = mib, 0
	case "maxmempercpu":
		p.MaxMemPerCpuMib, p.MaxMemPerNodeMib = mib, 0
	case "maxmempernode":
		p.MaxMemPerNodeMib, p.MaxMemPerCpuMib = mib, 0
	}
	return nil
}

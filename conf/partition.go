package conf

import (
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/conf/tres"
)

// NotSet means that the cluster's value applies.
const NotSet int64 = -2

// Partition is one partition as configured. Allow lists that are nil allow everybody; deny lists that are nil deny nobody.
type Partition struct {
	Name     string
	Nodes    []string // each once, in the given order
	AllNodes bool     // Nodes=ALL
	// NodeSets are the NodeSet lines that Nodes= names, SetFeatures their features.
	NodeSets, SetFeatures []string
	Default               bool
	State                 string // UP, DOWN, DRAIN or INACTIVE

	MaxTimeMin       int64 // Unlimited: none
	DefaultTimeMin   int64 // NotSet: MaxTimeMin
	OverTimeLimitMin int64 // NotSet: the cluster's
	MinNodes         int
	MaxNodes         int64 // Unlimited: none
	MaxCPUsPerNode   int64
	MaxCPUsPerSocket int64
	GraceTimeSec     int64

	DefMemPerCPUMiB  uint64 // 0: the cluster's, also for the next ones
	DefMemPerNodeMiB uint64
	DefMemPerGPUMiB  uint64
	MaxMemPerCPUMiB  uint64
	MaxMemPerNodeMiB uint64
	DefCPUPerGPU     int

	AllowGroups   []string
	AllowAccounts []string
	DenyAccounts  []string
	AllowQOS      []string
	DenyQOS       []string
	AllocNodes    []string
	Alternate     string
	QOS           string

	PriorityTier      int
	PriorityJobFactor int
	PreemptMode       []string // nil: the cluster's
	OverSubscribe     OverSubscribe

	Hidden          bool
	RootOnly        bool
	ReqResv         bool
	LLN             bool
	ExclusiveUser   bool
	ExclusiveTopo   bool
	DisableRootJobs bool

	CPUBind              string
	SelectTypeParameters string
	TRESBillingWeights   string // as written
	BillingWeights       []tres.Weight
	SuspendTimeSec       int64 // NotSet: the cluster's
	SuspendTimeoutSec    int64
	ResumeTimeoutSec     int64
	Topology             string

	File string
	Line int

	nodesText string
	given     map[string]bool // lower-case keys that were set
}

// OverSubscribe says how jobs share a partition's resources. Jobs is the number that may share one, with FORCE and YES.
type OverSubscribe struct {
	Mode string // NO, EXCLUSIVE, FORCE or YES
	Jobs int
}

// String writes "NO", "EXCLUSIVE", "FORCE:4", "YES:4".
func (o OverSubscribe) String() string {
	if o.Mode == "FORCE" || o.Mode == "YES" {
		return o.Mode + ":" + strconv.Itoa(o.Jobs)
	}
	return o.Mode
}

func readOverSubscribe(p *Partition, v string) error {
	mode, jobs, counted := strings.Cut(v, ":")
	o := OverSubscribe{Jobs: 4}
	var err error
	if o.Mode, err = oneOf(mode, "NO", "EXCLUSIVE", "FORCE", "YES"); err != nil {
		return err
	}
	if counted {
		err = readNumber(&o.Jobs, jobs, 1, 32766)
	}
	p.OverSubscribe = o
	return err
}

func partText(field func(*Partition) *string) func(*Partition, string) error {
	return func(p *Partition, v string) error {
		*field(p) = v
		return nil
	}
}

func partBool(field func(*Partition) *bool) func(*Partition, string) error {
	return func(p *Partition, v string) error { return readBool(field(p), v) }
}

func partMinutes(field func(*Partition) *int64) func(*Partition, string) error {
	return func(p *Partition, v string) error { return readMinutes(field(p), v) }
}

func partSeconds(field func(*Partition) *int64) func(*Partition, string) error {
	return func(p *Partition, v string) error { return readSeconds(field(p), v) }
}

func partMiB(field func(*Partition) *uint64) func(*Partition, string) error {
	return func(p *Partition, v string) error { return readMiB(field(p), v) }
}

func partNumber(field func(*Partition) *int, high int64) func(*Partition, string) error {
	return func(p *Partition, v string) error { return readNumber(field(p), v, 0, high) }
}

// partLimit reads a count or UNLIMITED.
func partLimit(field func(*Partition) *int64) func(*Partition, string) error {
	return func(p *Partition, v string) error {
		if endless(v) {
			*field(p) = timespec.Unlimited
			return nil
		}
		return readNumber(field(p), v, 0, maxSeconds)
	}
}

// partNames reads a list in which ALL means everybody.
func partNames(field func(*Partition) *[]string) func(*Partition, string) error {
	return func(p *Partition, v string) error {
		if *field(p) = words(v); strings.EqualFold(v, "ALL") {
			*field(p) = nil
		}
		return nil
	}
}

var partitionKeys = recordKeys(func() []recordKey[Partition] {
	return []recordKey[Partition]{
		{name: "Nodes", set: partText(func(p *Partition) *string { return &p.nodesText })},
		{name: "Default", set: partBool(func(p *Partition) *bool { return &p.Default })},
		{name: "State", set: func(p *Partition, v string) (err error) {
			p.State, err = oneOf(v, "UP", "DOWN", "DRAIN", "INACTIVE")
			return err
		}},
		{name: "MaxTime", set: partMinutes(func(p *Partition) *int64 { return &p.MaxTimeMin })},
		{name: "DefaultTime", set: partMinutes(func(p *Partition) *int64 { return &p.DefaultTimeMin })},
		{name: "OverTimeLimit", set: partMinutes(func(p *Partition) *int64 { return &p.OverTimeLimitMin })},
		{name: "MinNodes", set: partNumber(func(p *Partition) *int { return &p.MinNodes }, maxNodes)},
		{name: "MaxNodes", set: partLimit(func(p *Partition) *int64 { return &p.MaxNodes })},
		{name: "MaxCPUsPerNode", set: partLimit(func(p *Partition) *int64 { return &p.MaxCPUsPerNode })},
		{name: "MaxCPUsPerSocket", set: partLimit(func(p *Partition) *int64 { return &p.MaxCPUsPerSocket }),
			why: "CPUs are not limited by socket; set MaxCPUsPerNode"},
		{name: "GraceTime", set: partSeconds(func(p *Partition) *int64 { return &p.GraceTimeSec })},
		{name: "DefMemPerCPU", set: partMiB(func(p *Partition) *uint64 { return &p.DefMemPerCPUMiB })},
		{name: "DefMemPerNode", set: partMiB(func(p *Partition) *uint64 { return &p.DefMemPerNodeMiB })},
		{name: "DefMemPerGPU", set: partMiB(func(p *Partition) *uint64 { return &p.DefMemPerGPUMiB })},
		{name: "MaxMemPerCPU", set: partMiB(func(p *Partition) *uint64 { return &p.MaxMemPerCPUMiB })},
		{name: "MaxMemPerNode", set: partMiB(func(p *Partition) *uint64 { return &p.MaxMemPerNodeMiB })},
		{name: "DefCpuPerGPU", set: partNumber(func(p *Partition) *int { return &p.DefCPUPerGPU }, 65533)},
		{name: "JobDefaults", set: func(p *Partition, v string) error {
			return readJobDefaults(v, &p.DefCPUPerGPU, &p.DefMemPerGPUMiB)
		}},
		{name: "AllowGroups", set: partNames(func(p *Partition) *[]string { return &p.AllowGroups })},
		{name: "AllowAccounts", set: partNames(func(p *Partition) *[]string { return &p.AllowAccounts })},
		{name: "DenyAccounts", set: partNames(func(p *Partition) *[]string { return &p.DenyAccounts })},
		{name: "AllowQos", set: partNames(func(p *Partition) *[]string { return &p.AllowQOS })},
		{name: "DenyQos", set: partNames(func(p *Partition) *[]string { return &p.DenyQOS })},
		{name: "AllocNodes", set: func(p *Partition, v string) (err error) {
			if p.AllocNodes, err = hostlist.Expand(v); strings.EqualFold(v, "ALL") {
				p.AllocNodes = nil
			}
			return err
		}},
		{name: "Alternate", set: partText(func(p *Partition) *string { return &p.Alternate }),
			why: "a job for a partition in DRAIN is refused or waits; a job can name several partitions instead"},
		{name: "QOS", set: partText(func(p *Partition) *string { return &p.QOS })},
		{name: "PriorityTier", set: partNumber(func(p *Partition) *int { return &p.PriorityTier }, 65533)},
		{name: "PriorityJobFactor", set: partNumber(func(p *Partition) *int { return &p.PriorityJobFactor }, 65533)},
		{name: "Priority", set: func(p *Partition, v string) error {
			p.PriorityJobFactor, p.PriorityTier = 1, 1
			if err := readNumber(&p.PriorityTier, v, 0, 65533); err != nil {
				return err
			}
			p.PriorityJobFactor = p.PriorityTier
			return nil
		}},
		{name: "PreemptMode", set: func(p *Partition, v string) (err error) {
			p.PreemptMode, err = readPreemptMode(v)
			return err
		}},
		{name: "OverSubscribe", set: readOverSubscribe},
		{name: "Shared", set: readOverSubscribe},
		{name: "Hidden", set: partBool(func(p *Partition) *bool { return &p.Hidden })},
		{name: "RootOnly", set: partBool(func(p *Partition) *bool { return &p.RootOnly })},
		{name: "ReqResv", set: partBool(func(p *Partition) *bool { return &p.ReqResv })},
		{name: "LLN", set: partBool(func(p *Partition) *bool { return &p.LLN })},
		{name: "ExclusiveUser", set: partBool(func(p *Partition) *bool { return &p.ExclusiveUser })},
		{name: "ExclusiveTopo", set: partBool(func(p *Partition) *bool { return &p.ExclusiveTopo }),
			why: "switches are not allocated as a whole; set OverSubscribe=EXCLUSIVE for whole nodes"},
		{name: "DisableRootJobs", set: partBool(func(p *Partition) *bool { return &p.DisableRootJobs })},
		{name: "CpuBind", why: whyBind, set: func(p *Partition, v string) (err error) {
			p.CPUBind, err = oneOf(v, "none", "socket", "ldom", "core", "thread", "off")
			return err
		}},
		{name: "SelectTypeParameters", set: partText(func(p *Partition) *string { return &p.SelectTypeParameters }),
			why: "all partitions allocate the same units; set SelectTypeParameters globally"},
		{name: "TRESBillingWeights", why: "billing is the number of CPUs", set: func(p *Partition, v string) (err error) {
			p.TRESBillingWeights = v
			p.BillingWeights, err = tres.ParseWeights(v)
			return err
		}},
		{name: "SuspendTime", set: partSeconds(func(p *Partition) *int64 { return &p.SuspendTimeSec })},
		{name: "SuspendTimeout", set: partSeconds(func(p *Partition) *int64 { return &p.SuspendTimeoutSec })},
		{name: "ResumeTimeout", set: partSeconds(func(p *Partition) *int64 { return &p.ResumeTimeoutSec })},
		{name: "Topology", set: partText(func(p *Partition) *string { return &p.Topology }), why: whyTopology},
		{name: "PowerDownOnIdle", why: "SuspendTime=0 of the partition does the same"},
	}
})

// partitionLine reads a PartitionName line.
func (l *loader) partitionLine(pairs []pair) {
	name := pairs[0]
	p := &Partition{
		Name: name.value, File: name.file, Line: name.line, State: "UP",
		MaxTimeMin: timespec.Unlimited, DefaultTimeMin: NotSet, OverTimeLimitMin: NotSet,
		MaxNodes: timespec.Unlimited, MaxCPUsPerNode: timespec.Unlimited, MaxCPUsPerSocket: timespec.Unlimited,
		PriorityTier: 1, PriorityJobFactor: 1, OverSubscribe: OverSubscribe{Mode: "NO"},
		SuspendTimeSec: NotSet, SuspendTimeoutSec: NotSet, ResumeTimeoutSec: NotSet, given: map[string]bool{},
	}
	if strings.EqualFold(name.value, "DEFAULT") {
		readRecord(l, "PartitionName", partitionKeys(), pairs[1:], p)
		keepDefaults(l.partDefault, pairs[1:])
		return
	}
	all := l.oneOfEach(p.Name, merge(l.partDefault, pairs[1:]), pairs[1:])
	readRecord(l, "PartitionName", partitionKeys(), all, p)
	for _, pair := range all {
		p.given[strings.ToLower(pair.key)] = true
	}
	if p.Name == "" || strings.ContainsAny(p.Name, ",* []") {
		l.fault(name.place, "", "%.60q cannot be the name of a partition", p.Name)
		return
	}
	l.partitions = append(l.partitions, p)
}

// rivals are keys that exclude each other; one on the partition's own line takes precedence over PartitionName=DEFAULT.
var rivals = map[string]string{"defmempercpu": "defmempernode", "defmempernode": "defmempercpu", "maxmempercpu": "maxmempernode",
	"maxmempernode": "maxmempercpu"}

// oneOfEach drops defaults whose rival is on the partition's own line.
func (l *loader) oneOfEach(name string, all, own []pair) []pair {
	has := func(pairs []pair, key string) bool {
		return slices.ContainsFunc(pairs, func(p pair) bool { return strings.EqualFold(p.key, key) })
	}
	return slices.DeleteFunc(all, func(p pair) bool {
		key := strings.ToLower(p.key)
		if rivals[key] == "" || !has(own, rivals[key]) || has(own, key) {
			return false
		}
		l.warn(own[0].place, "", "partition %s: its own line overrides %s of PartitionName=DEFAULT", name, p.key)
		return true
	})
}

// nodeSet is one NodeSet line.
type nodeSet struct {
	name, feature string
	nodes         []string
	place
}

var nodeSetKeys = recordKeys(func() []recordKey[nodeSet] {
	return []recordKey[nodeSet]{
		{name: "Feature", set: func(s *nodeSet, v string) error {
			s.feature = v
			return nil
		}},
		{name: "Nodes", set: func(s *nodeSet, v string) (err error) {
			s.nodes, err = hostlist.Expand(v)
			return err
		}},
	}
})

func (l *loader) nodeSetLine(pairs []pair) {
	s := &nodeSet{name: pairs[0].value, place: pairs[0].place}
	readRecord(l, "NodeSet", nodeSetKeys(), pairs[1:], s)
	if first, twice := l.nodeSets[s.name]; twice {
		l.fault(s.place, "", "node set %s is already defined at %s:%d", s.name, first.file, first.line)
		return
	}
	l.nodeSets[s.name] = s
}

// resolvePartitions assigns nodes to each partition.
func (l *loader) resolvePartitions() {
	for name, s := range l.nodeSets {
		if n, clash := l.c.nodeByID[name]; clash {
			l.fault(s.place, "rename one of them", "node set %s has the name of the node at %s:%d", name, n.File, n.Line)
		}
	}
	for _, p := range l.partitions {
		at := place{p.File, p.Line}
		if first, twice := l.c.partition[p.Name]; twice {
			l.fault(at, "put everything about it on one line", "partition %s is already defined at %s:%d", p.Name, first.File, first.Line)
			continue
		}
		if _, ok := l.c.raw["disablerootjobs"]; ok && !p.given["disablerootjobs"] {
			p.DisableRootJobs = l.c.DisableRootJobs
		}
		p.Nodes = l.partitionNodes(p, at)
		l.c.partition[p.Name] = p
		l.c.Partitions = append(l.c.Partitions, p)
	}
}

func (l *loader) partitionNodes(p *Partition, at place) []string {
	var out []string
	seen := map[string]bool{}
	add := func(name string) {
		if !seen[name] {
			seen[name] = true
			out = append(out, name)
		}
	}
	names, err := hostlist.Expand(p.nodesText)
	if err != nil {
		l.fault(at, "", "Nodes: %s", err)
	}
	for _, name := range names {
		set, isSet := l.nodeSets[name]
		switch {
		case strings.EqualFold(name, "ALL"):
			p.AllNodes = true
			for _, n := range l.c.Nodes {
				add(n.Name)
			}
		case isSet:
			if p.NodeSets = append(p.NodeSets, name); set.feature != "" {
				p.SetFeatures = append(p.SetFeatures, set.feature)
			}
			for _, name := range l.nodeSetNames(set) {
				add(name)
			}
		case l.c.nodeByID[name] == nil:
			l.fault(at, l.nearestNode(name), "partition %s names unknown node %s", p.Name, name)
		default:
			add(name)
		}
	}
	return out
}

func (l *loader) nodeSetNames(s *nodeSet) []string {
	var out []string
	for _, name := range s.nodes {
		if l.c.nodeByID[name] == nil {
			l.fault(s.place, l.nearestNode(name), "node set %s names unknown node %s", s.name, name)
			continue
		}
		out = append(out, name)
	}
	for _, n := range l.c.Nodes {
		if s.feature != "" && slices.Contains(n.Features, s.feature) {
			out = append(out, n.Name)
		}
	}
	return out
}

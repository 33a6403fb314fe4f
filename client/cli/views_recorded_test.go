package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/scontrol"
	"github.com/sluice-hpc/sluice/client/sinfo"
	"github.com/sluice-hpc/sluice/client/squeue"
	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/conf/tres"
	"github.com/sluice-hpc/sluice/proto/coding"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// recorded is one answer of a real Slurm (testdata/slurm-22.05/README.md).
type recorded struct {
	argv           []string
	env            map[string]string
	rc             int
	stdout, stderr string
}

func readRecorded(t testing.TB, name string) (now time.Time, all []recorded) {
	t.Helper()
	data, err := os.ReadFile("testdata/slurm-22.05/" + name)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split("\n"+strings.TrimSuffix(string(data), "\n"), "\n=== ")
	now, err = time.Parse("now 2006-01-02 15:04:05", strings.TrimSpace(parts[0]))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parts[1:] {
		head, rest, _ := strings.Cut(p, "\n")
		rest += "\n"
		var r recorded
		dec := json.NewDecoder(strings.NewReader(head))
		if err := dec.Decode(&r.argv); err != nil {
			t.Fatalf("%s: %v", head, err)
		}
		if err := dec.Decode(&r.env); err != nil && err != io.EOF {
			t.Fatalf("%s: %v", head, err)
		}
		rc, rest, _ := strings.Cut(rest, "\n")
		if r.rc, err = strconv.Atoi(strings.TrimPrefix(rc, "rc ")); err != nil {
			t.Fatalf("%s: %v", head, err)
		}
		rest, r.stderr, _ = strings.Cut(rest, "--- stderr\n")
		r.stdout = strings.TrimPrefix(rest, "--- stdout\n")
		all = append(all, r)
	}
	return now, all
}

// facts cuts one line of `scontrol -o` into keys and values; a value reaches to the next word that looks like a key.
func facts(line string) map[string]string {
	m := map[string]string{}
	key := ""
	for _, word := range strings.Split(line, " ") {
		k, v, ok := strings.Cut(word, "=")
		if ok && k != "" && (k[0] >= 'A' && k[0] <= 'Z') && !strings.ContainsAny(k, "[(-") {
			key = k
			m[key] = v
			continue
		}
		m[key] += " " + word
	}
	for k, v := range m {
		v = strings.TrimRight(v, " ")
		if v == "(null)" || v == "N/A" || v == "Unknown" || v == "None" && k != "Reason" {
			v = ""
		}
		m[k] = v
	}
	return m
}

type factReader struct {
	testing.TB
	m map[string]string
}

func (f factReader) num(key string) uint64 {
	s, _, _ := strings.Cut(f.m[key], "-")
	if s == "" || s == "*" || s == "UNLIMITED" {
		return 0
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		f.Fatalf("%s=%s: %v", key, f.m[key], err)
	}
	return n
}

func (f factReader) ns(key string) int64 {
	if f.m[key] == "" {
		return 0
	}
	at, err := time.Parse("2006-01-02T15:04:05", f.m[key])
	if err != nil {
		return 0
	}
	return at.UnixNano()
}

func (f factReader) mib(key string) uint64 {
	if f.m[key] == "" {
		return 0
	}
	n, err := parseSize(f.m[key])
	if err != nil {
		f.Fatalf("%s=%s: %v", key, f.m[key], err)
	}
	return n
}

// parseSize reads what FormatMiB writes, fractions included.
func parseSize(s string) (uint64, error) {
	whole, frac, has := strings.Cut(s, ".")
	if !has {
		return tres.ParseMiB(s)
	}
	unit := frac[len(frac)-1:]
	one, err := tres.ParseMiB("1" + unit)
	if err != nil {
		return 0, err
	}
	v, err := strconv.ParseFloat(whole+"."+frac[:len(frac)-1], 64)
	return uint64(v * float64(one)), err
}

func (f factReader) limit(key string) uint32 {
	switch f.m[key] {
	case "UNLIMITED":
		return msg.Unlimited
	case "", "NONE":
		return 0
	}
	var d, h, m, s int
	if _, err := fmt.Sscanf(f.m[key], "%d-%d:%d:%d", &d, &h, &m, &s); err != nil {
		d = 0
		if _, err := fmt.Sscanf(f.m[key], "%d:%d:%d", &h, &m, &s); err != nil {
			f.Fatalf("%s=%s: %v", key, f.m[key], err)
		}
	}
	return uint32(d*86400 + h*3600 + m*60 + s)
}

// named reads "root(0)".
func named(s string) (string, uint32) {
	name, id, _ := strings.Cut(strings.TrimSuffix(s, ")"), "(")
	n, _ := strconv.Atoi(id)
	return name, uint32(n)
}

func wait(s string) uint32 {
	var code, sig uint32
	_, _ = fmt.Sscanf(s, "%d:%d", &code, &sig)
	return code<<8 | sig
}

func jobFromFacts(t testing.TB, line string) *msg.JobRecord {
	f := factReader{t, facts(line)}
	m := f.m
	user, uid := named(m["UserId"])
	group, gid := named(m["GroupId"])
	shape := strings.Split(m["ReqB:S:C:T"], ":")
	star := func(s string) uint32 { n, _ := strconv.Atoi(s); return uint32(n) }
	node, sid, _ := strings.Cut(m["AllocNode:Sid"], ":")
	nice, _ := strconv.Atoi(m["Nice"])
	spec := &msg.JobSpec{Name: m["JobName"], User: user, Uid: uid, Group: group, Gid: gid, Nice: int32(nice), Account: m["Account"],
		Qos:        m["QOS"],
		Dependency: m["Dependency"], Partition: m["Partition"], AllocNode: node, AllocSid: star(sid), ReqNodes: m["ReqNodeList"],
		ExcNodes:    m["ExcNodeList"],
		CpusPerTask: uint32(f.num("CPUs/Task")), SocketsPerNode: star(m["Socks/Node"]), CoresPerSocket: star(shape[2]),
		ThreadsPerCore: star(shape[3]),
		PnMinCpus:      uint32(f.num("MinCPUsNode")), MemPerCpuMib: f.mib("MinMemoryCPU"), MemPerNodeMib: f.mib("MinMemoryNode"),
		TmpDiskMib: f.mib("MinTmpDiskNode"),
		Features:   m["Features"], Contiguous: m["Contiguous"] == "1", Command: m["Command"], WorkDir: m["WorkDir"], Comment: m["Comment"],
		StdErr: m["StdErr"], StdIn: m["StdIn"], StdOut: m["StdOut"], CpusPerTres: m["CpusPerTres"], MemPerTres: m["MemPerTres"],
		TresPerJob: m["TresPerJob"], TresPerNode: m["TresPerNode"], TimeMinS: f.limit("TimeMin"), DeadlineNs: f.ns("Deadline")}
	spec.NtasksPerNode = star(strings.SplitN(m["NtasksPerN:B:S:C"], ":", 2)[0])
	switch m["OverSubscribe"] {
	case "NO":
		spec.Sharing = "exclusive"
	case "YES":
		spec.Sharing = "oversubscribe"
	}
	if m["GresEnforceBind"] == "Yes" {
		spec.GresFlags = "enforce-binding"
	}
	if _, most, ok := strings.Cut(m["NumNodes"], "-"); ok {
		spec.MaxNodes = star(most)
	}
	r := &msg.JobRecord{Id: uint32(f.num("JobId")), Spec: spec, Reason: strings.ReplaceAll(m["Reason"], "_", " "),
		Partition: m["Partition"],
		Priority:  uint32(f.num("Priority")), Restarts: uint32(f.num("Restarts")), ExitStatus: wait(m["ExitCode"]),
		DerivedStatus: wait(m["DerivedExitCode"]),
		SubmitNs:      f.ns("SubmitTime"), EligibleNs: f.ns("EligibleTime"), AccrueNs: f.ns("AccrueTime"), SuspendNs: f.ns("SuspendTime"),
		PreSuspendNs: int64(f.num("SecsPreSuspend")) * 1e9, LastSchedNs: f.ns("LastSchedEval"), Scheduler: m["Scheduler"],
		TimeLimitS: f.limit("TimeLimit"),
		NodeList:   m["NodeList"], BatchHost: m["BatchHost"], NumNodes: uint32(f.num("NumNodes")), NumCpus: uint32(f.num("NumCPUs")),
		NumTasks: uint32(f.num("NumTasks")), ReqTres: m["TRES"], ArrayJobId: uint32(f.num("ArrayJobId")), ExpectedNodes: m["SchedNodeList"],
		ArrayThrottle: uint32(f.num("ArrayTaskThrottle")), DependencyShown: m["Dependency"]}
	for s := range msg.JobState_name {
		if strings.TrimPrefix(msg.JobState(s).String(), "JOB_") == m["JobState"] {
			r.State = msg.JobState(s)
		}
	}
	if strings.ContainsAny(m["ArrayTaskId"], "-,") {
		r.ArrayTasks = m["ArrayTaskId"]
	} else {
		r.ArrayTaskId, r.IsArrayTask = uint32(f.num("ArrayTaskId")), r.ArrayJobId != 0
	}
	if r.State == msg.JobState_JOB_PENDING {
		r.ExpectedStartNs = f.ns("StartTime")
	} else {
		r.StartNs, r.EndNs = f.ns("StartTime"), f.ns("EndTime")
		r.AllocTres = m["TRES"]
	}
	if m["CPU_IDs"] != "" {
		nodes, _ := hostlist.Expand(m["Nodes"])
		for _, n := range nodes {
			r.Alloc = append(r.Alloc, &msg.NodeAlloc{Node: n, CpuIds: m["CPU_IDs"], MemMib: f.num("Mem"), Gres: m["GRES"]})
		}
	}
	return r
}

func nodeFromFacts(t testing.TB, line string) *msg.NodeRecord {
	f := factReader{t, facts(line)}
	m := f.m
	n := &msg.NodeRecord{Name: m["NodeName"], Addr: m["NodeAddr"], Hostname: m["NodeHostName"], Port: uint32(f.num("Port")),
		BootNs:       f.ns("BootTime"),
		NodedStartNs: f.ns("SlurmdStartTime"), LastBusyNs: f.ns("LastBusyTime"), Version: m["Version"], Os: m["OS"], Arch: m["Arch"],
		Cpus: uint32(f.num("CPUTot")), Boards: 1, Sockets: uint32(f.num("Sockets")), Cores: uint32(f.num("CoresPerSocket")),
		Threads:       uint32(f.num("ThreadsPerCore")),
		RealMemoryMib: f.num("RealMemory"), TmpDiskMib: f.num("TmpDisk"), Weight: uint32(f.num("Weight")), Features: m["AvailableFeatures"],
		ActiveFeatures: m["ActiveFeatures"], Gres: m["Gres"], GresUsed: m["GresUsed"], Partitions: strings.Split(m["Partitions"], ","),
		AllocCpus: uint32(f.num("CPUAlloc")), AllocMemMib: f.num("AllocMem"), AllocTres: m["AllocTRES"], CfgTres: m["CfgTRES"],
		FreeMemMib: f.num("FreeMem"), CpuLoadKnown: true}
	n.CpuLoad, _ = strconv.ParseFloat(m["CPULoad"], 64)
	if reason, rest, ok := strings.Cut(m["Reason"], " ["); ok {
		user, at, _ := strings.Cut(strings.TrimSuffix(rest, "]"), "@")
		moment, err := time.Parse("2006-01-02T15:04:05", at)
		if err != nil {
			t.Fatal(err)
		}
		n.Reason, n.ReasonUser, n.ReasonNs = reason, user, moment.UnixNano()
	}
	words := strings.Split(m["State"], "+")
	n.State = map[string]msg.NodeState{"DOWN": msg.NodeState_NODE_DOWN, "UNKNOWN": msg.NodeState_NODE_UNKNOWN}[words[0]]
	if n.State == 0 {
		n.State = msg.NodeState_NODE_IDLE
	}
	for _, w := range words[1:] {
		flag, ok := map[string]uint32{"DRAIN": msg.NodeDrain, "PLANNED": msg.NodePlanned, "FAIL": msg.NodeFail,
			"MAINTENANCE": msg.NodeMaint, "RESERVED": msg.NodeReserved}[w]
		if !ok {
			t.Fatalf("unknown flag %s", w)
		}
		n.StateFlags |= flag
	}
	return n
}

func partitionFromFacts(t testing.TB, line string) *msg.PartitionRecord {
	f := factReader{t, facts(line)}
	m := f.m
	most := func(key string) uint32 {
		if m[key] == "UNLIMITED" {
			return msg.Unlimited
		}
		return uint32(f.num(key))
	}
	return &msg.PartitionRecord{Name: m["PartitionName"], Nodes: m["Nodes"], IsDefault: m["Default"] == "YES", State: m["State"],
		MaxTimeS:     f.limit("MaxTime"),
		DefaultTimeS: f.limit("DefaultTime"), MinNodes: uint32(f.num("MinNodes")), MaxNodes: most("MaxNodes"),
		TotalNodes: uint32(f.num("TotalNodes")),
		TotalCpus:  uint32(f.num("TotalCPUs")), DefMemPerCpuMib: f.num("DefMemPerCPU"), MaxMemPerNodeMib: f.num("MaxMemPerNode"),
		PriorityTier: uint32(f.num("PriorityTier")), PriorityJobFactor: uint32(f.num("PriorityJobFactor")),
		Oversubscribe: m["OverSubscribe"],
		AllowGroups:   m["AllowGroups"], AllowAccounts: m["AllowAccounts"], AllowQos: m["AllowQos"], DenyQos: m["DenyQos"],
		Hidden:   m["Hidden"] == "YES",
		RootOnly: m["RootOnly"] == "YES", Tres: m["TRES"]}
}

// scene is a fake controller that holds what the facts say and answers selections as the real one does.
type scene struct {
	msg.ControllerAPIClient
	now      time.Time
	jobs     []*msg.JobRecord
	steps    []*msg.StepRecord
	nodes    []*msg.NodeRecord
	parts    []*msg.PartitionRecord
	resvs    []*msg.ReservationRecord
	licenses []*msg.LicenseRecord
	asked    []*msg.JobsRequest
}

func readScene(t testing.TB, files ...string) *scene {
	t.Helper()
	s := &scene{}
	for _, file := range files {
		now, all := readRecorded(t, file)
		s.now = now
		for _, r := range all {
			var nodes []*msg.NodeRecord
			for _, line := range strings.Split(strings.TrimSuffix(r.stdout, "\n"), "\n") {
				switch {
				case strings.HasPrefix(line, "JobId="):
					s.jobs = append(s.jobs, jobFromFacts(t, line))
				case strings.HasPrefix(line, "NodeName="):
					nodes = append(nodes, nodeFromFacts(t, line))
					s.nodes = nodes
				case strings.HasPrefix(line, "PartitionName=debug"):
					s.parts = nil
					fallthrough
				case strings.HasPrefix(line, "PartitionName="):
					s.parts = append(s.parts, partitionFromFacts(t, line))
				}
			}
		}
	}
	slices.SortFunc(s.jobs, func(a, b *msg.JobRecord) int { return int(a.Id) - int(b.Id) })
	return s
}

func (s *scene) Steps(_ context.Context, r *msg.StepsRequest) (msg.Stream[msg.StepsReply], error) {
	reply := &msg.StepsReply{NowNs: s.now.UnixNano()}
	for _, step := range s.steps {
		if len(r.Ids) == 0 || slices.Contains(r.Ids, fmt.Sprint(step.JobId)) {
			reply.Steps = append(reply.Steps, step)
		}
	}
	return &pages[msg.StepsReply, *msg.StepsReply]{left: []*msg.StepsReply{reply}}, nil
}

func (s *scene) Close() error { return nil }

func (s *scene) Ping(context.Context, *msg.PingRequest) (*msg.PingReply, error) {
	return &msg.PingReply{Host: "vm", Mode: "primary", Cluster: "lab"}, nil
}

func (s *scene) Partitions(context.Context, *msg.PartitionsRequest) (*msg.PartitionsReply, error) {
	return &msg.PartitionsReply{Partitions: s.parts}, nil
}

// pages is a stream of given messages.
type pages[M any, P interface {
	*M
	Marshal() []byte
}] struct{ left []*M }

func (p *pages[M, P]) Recv() (*M, error) {
	if len(p.left) == 0 {
		return nil, io.EOF
	}
	first := p.left[0]
	p.left = p.left[1:]
	return first, nil
}

func (p *pages[M, P]) RecvEncoded() (string, error) {
	first, err := p.Recv()
	if err != nil {
		return "", err
	}
	return string(P(first).Marshal()), nil
}

func (s *scene) Nodes(_ context.Context, r *msg.NodesRequest) (msg.Stream[msg.NodesReply], error) {
	reply := &msg.NodesReply{NowNs: s.now.UnixNano()}
	for _, n := range s.nodes {
		if len(r.Names) == 0 || slices.ContainsFunc(r.Names, func(l string) bool {
			names,
				_ := hostlist.Expand(l)
			return slices.Contains(names, n.Name)
		}) {
			reply.Nodes = append(reply.Nodes, askedNode(n, r))
		}
	}
	return &pages[msg.NodesReply, *msg.NodesReply]{left: []*msg.NodesReply{reply}}, nil
}

func (s *scene) Reservations(context.Context, *msg.ReservationsRequest) (*msg.ReservationsReply, error) {
	return &msg.ReservationsReply{Reservations: s.resvs, NowNs: s.now.UnixNano()}, nil
}

func (s *scene) Licenses(context.Context, *msg.LicensesRequest) (*msg.LicensesReply, error) {
	return &msg.LicensesReply{Licenses: s.licenses}, nil
}

func (s *scene) Topology(context.Context, *msg.TopologyRequest) (*msg.TopologyReply, error) {
	return &msg.TopologyReply{}, nil
}

func (s *scene) Jobs(_ context.Context, r *msg.JobsRequest) (msg.Stream[msg.JobsReply], error) {
	s.asked = append(s.asked, r)
	in := func(list []string, v string) bool { return len(list) == 0 || slices.Contains(list, v) }
	var stream pages[msg.JobsReply, *msg.JobsReply]
	for _, j := range s.jobs {
		ids := []string{fmt.Sprint(j.Id), fmt.Sprint(j.ArrayJobId)}
		state := r.AllStates || slices.Contains(r.States, j.State) || r.StateFlags&j.StateFlags != 0
		nodes, _ := hostlist.Expand(j.NodeList)
		var part bool
		for _, p := range strings.Split(j.Partition, ",") {
			part = part || in(r.Partitions, p)
		}
		if (len(r.Ids) == 0 || in(r.Ids, ids[0]) || in(r.Ids, ids[1])) && state && part && in(r.Names, j.Spec.Name) &&
			in(r.Accounts, j.Spec.Account) &&
			in(r.Qos, j.Spec.Qos) && in(r.Reservations, j.Spec.Reservation) && (len(r.Uids) == 0 || slices.Contains(r.Uids, j.Spec.Uid)) &&
			(len(r.Nodes) == 0 || slices.ContainsFunc(nodes, func(n string) bool { return slices.Contains(r.Nodes, n) })) {
			stream.left = append(stream.left, &msg.JobsReply{Jobs: []*msg.JobRecord{asked(j, r)}, NowNs: s.now.UnixNano()})
		}
	}
	return &stream, nil
}

// asked is what the controller sends of a job.
func asked(j *msg.JobRecord, r *msg.JobsRequest) *msg.JobRecord {
	some := &msg.JobRecord{}
	part(j.Marshal(), &pb.JobRecord{}, &pb.Fields{Job: coding.FieldsOf(r.GetFields()), Spec: coding.FieldsOf(r.GetSpecFields())}, some)
	return some
}

func askedNode(n *msg.NodeRecord, r *msg.NodesRequest) *msg.NodeRecord {
	some := &msg.NodeRecord{}
	part(n.Marshal(), &pb.NodeRecord{}, &pb.Fields{Node: coding.FieldsOf(r.GetFields())}, some)
	return some
}

// part makes of an encoded record what the controller sends when some fields are asked for.
func part(encoded []byte, whole interface {
	proto.Message
	AppendFields([]byte, *pb.Fields) []byte
}, in *pb.Fields, some interface{ Unmarshal([]byte) error }) {
	if err := proto.Unmarshal(encoded, whole); err != nil {
		panic(err)
	}
	if err := some.Unmarshal(whole.AppendFields(nil, in)); err != nil {
		panic(err)
	}
}

// run runs a command line against the scene.
func (s *scene) run(argv []string, env map[string]string) (rc int, stdout, stderr string) {
	var out, errs bytes.Buffer
	e := &command.Env{Name: argv[0], Stdout: &out, Stderr: &errs, Now: func() time.Time { return s.now }, Environ: []string{"TZ=UTC"},
		Dial: func(context.Context) (*client.Client, error) { return &client.Client{ControllerAPIClient: s}, nil }}
	for k, v := range env {
		e.Environ = append(e.Environ, k+"="+v)
	}
	switch argv[0] {
	case "squeue":
		rc = squeue.Main(e, argv[1:])
	case "sinfo":
		rc = sinfo.Main(e, argv[1:])
	case "scontrol":
		rc = scontrol.Main(e, argv[1:])
	}
	return rc, out.String(), errs.String()
}

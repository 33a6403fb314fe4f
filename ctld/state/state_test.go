package state

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/ctld/journal"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"
)

// fill sets every field of a message to something other than its default.
func fill(m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		switch {
		case fd.IsList() && fd.Kind() == protoreflect.MessageKind:
			l := m.Mutable(fd).List()
			e := l.NewElement()
			if depth > 0 {
				fill(e.Message(), depth-1)
			}
			l.Append(e)
		case fd.IsList():
			m.Mutable(fd).List().Append(scalar(fd, i))
		case fd.Kind() == protoreflect.MessageKind:
			if depth > 0 {
				fill(m.Mutable(fd).Message(), depth-1)
			}
		default:
			m.Set(fd, scalar(fd, i))
		}
	}
}

func scalar(fd protoreflect.FieldDescriptor, i int) protoreflect.Value {
	switch fd.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(fmt.Sprint("s", i))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(i + 1))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(uint64(i + 1))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(int64(i + 1))
	case protoreflect.Sint32Kind:
		return protoreflect.ValueOfInt32(int32(i + 1))
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(1)
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(float64(i) + 0.5)
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte{byte(i)})
	}
	panic(fmt.Sprint("no value for ", fd.FullName()))
}

func TestClonesHaveEveryField(t *testing.T) {
	j, n := &pb.JobRecord{}, &pb.NodeRecord{}
	fill(j.ProtoReflect(), 2)
	fill(n.ProtoReflect(), 2)
	for original, clone := range map[proto.Message]proto.Message{j: CloneJob(j), n: CloneNode(n), j.Spec: CloneSpec(j.Spec),
		j.Alloc[0]: CloneAlloc(j.Alloc[0])} {
		if !proto.Equal(original, clone) {
			t.Errorf("the clone differs:\n%v\n%v", original, clone)
		}
	}
	c := CloneJob(j)
	c.Id++
	c.Reason = "other"
	if j.Id == c.Id || j.Reason == c.Reason {
		t.Error("a change of the clone changed the original")
	}
}

func TestTableIsAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := map[uint32]*pb.JobRecord{}
		v := New(testConfig(0, 0), "c", 1)
		frozen := []*Jobs{v.Jobs}
		copies := []map[uint32]*pb.JobRecord{{}}
		for range rapid.IntRange(1, 12).Draw(t, "commits") {
			tx := Begin(v, 1)
			for range rapid.IntRange(0, 30).Draw(t, "ops") {
				id := rapid.Uint32Range(1, 3000).Draw(t, "id")
				if rapid.Bool().Draw(t, "put") {
					j := &pb.JobRecord{Id: id, Spec: &pb.JobSpec{}}
					tx.putJob(j, true)
					want[id] = j
				} else {
					tx.deleteJob(id)
					delete(want, id)
				}
			}
			v, _ = tx.Freeze()
			frozen = append(frozen, v.Jobs)
			snapshot := map[uint32]*pb.JobRecord{}
			for k, j := range want {
				snapshot[k] = j
			}
			copies = append(copies, snapshot)
		}
		for i, tab := range frozen { // older views must not have changed
			n, last := 0, uint32(0)
			for j := range tab.All() {
				if copies[i][j.Id] != j || j.Id <= last {
					t.Fatalf("view %d: job %d is wrong or out of order", i, j.Id)
				}
				last = j.Id
				n++
			}
			if n != len(copies[i]) || tab.Len() != n {
				t.Fatalf("view %d: %d jobs, Len %d, want %d", i, n, tab.Len(), len(copies[i]))
			}
		}
	})
}

func testConfig(nodes int, cpus uint32) *Config {
	cfg := &Config{Settings: &Settings{Cluster: "test", CountMemory: true}, PartitionNodes: map[string][]string{}, Default: "debug"}
	var names []string
	for i := range nodes {
		n := &pb.NodeRecord{Name: fmt.Sprintf("n%d", i+1), Cpus: cpus, Sockets: 1, Cores: cpus, Threads: 1,
			RealMemoryMib: 1000 * uint64(cpus), State: pb.NodeState_NODE_IDLE}
		cfg.Nodes = append(cfg.Nodes, n)
		names = append(names, n.Name)
	}
	cfg.Partitions = []*pb.PartitionRecord{{Name: "debug", State: "UP", MaxTimeS: pb.Unlimited, MaxNodes: pb.Unlimited, IsDefault: true}}
	cfg.PartitionNodes["debug"] = names
	return cfg
}

// TestRowsAreTheState: loading the rows of the commits gives the state that made them, with allocations counted again.
func TestRowsAreTheState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		store := journal.NewMemory()
		cfg := testConfig(3, 8)
		withAll(cfg)
		v := New(cfg, "c", 1)
		for range rapid.IntRange(1, 15).Draw(t, "commits") {
			tx := Begin(v, v.NowNS+1)
			for range rapid.IntRange(1, 4).Draw(t, "events") {
				if !rapid.Bool().Draw(t, "nodes") {
					randomEvent(t, tx)
				} else if to := randomNodes(t, tx); to != nil {
					cfg = to
				}
			}
			if tx.Durable() {
				rows, err := tx.Rows()
				if err == nil {
					err = store.Commit(journal.Batch{Seq: tx.Seq, Rows: rows})
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			v, _ = tx.Freeze()
			if err := v.Check(); err != nil {
				t.Fatal(err)
			}
		}
		got, err := Load(cfg, store, "c", 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := got.Check(); err != nil {
			t.Fatal("after loading:", err)
		}
		for j := range v.Jobs.All() {
			if !proto.Equal(got.Jobs.Get(j.Id), j) {
				t.Fatalf("job %d:\nloaded %v\nwas    %v", j.Id, got.Jobs.Get(j.Id), j)
			}
		}
		if got.Jobs.Len() != v.Jobs.Len() || got.NextJobID > v.NextJobID {
			t.Fatalf("loaded %d jobs, next id %d; was %d, %d", got.Jobs.Len(), got.NextJobID, v.Jobs.Len(), v.NextJobID)
		}
		if was, is := roster(v), roster(got); was != is {
			t.Fatalf("loaded nodes and partitions\n%s\nwere\n%s", is, was)
		}
	})
}

// withAll adds a partition with Nodes=ALL, and one of the nodes with a feature.
func withAll(cfg *Config) {
	all := cfg.PartitionNodes["debug"]
	cfg.Partitions = append(cfg.Partitions, &pb.PartitionRecord{Name: "all", State: "UP", AllNodes: true, Nodes: hostlist.FoldSorted(all),
		TotalNodes: uint32(len(all))},
		&pb.PartitionRecord{Name: "fast", State: "UP", NodeSets: []string{"set"}, SetFeatures: []string{"quick"}})
	cfg.PartitionNodes["all"] = all
}

// randomNodes has nodes come or go, or be other ones; it gives the configuration when that is another one then.
func randomNodes(t *rapid.T, tx *Tx) *Config {
	name := rapid.SampledFrom([]string{"d1", "d2"}).Draw(t, "dynamic")
	n := tx.Node(name)
	made := &pb.NodeRecord{Name: name, Cpus: 2, Sockets: 1, Cores: 2, Threads: 1, Origin: "joined", State: pb.NodeState_NODE_IDLE,
		RealMemoryMib: uint64(rapid.IntRange(1, 3).Draw(t, "memory")),
		Features:      rapid.SampledFrom([]string{"", "slow,quick"}).Draw(t, "features")}
	switch {
	case rapid.IntRange(0, 4).Draw(t, "reconfigure") == 0:
		to := testConfig(3, 8)
		if rapid.Bool().Draw(t, "named") { // slurm.conf has one of the dynamic ones, or not any more
			to.Nodes = append(to.Nodes, &pb.NodeRecord{Name: "d1", Cpus: 8})
			to.PartitionNodes["debug"] = append(to.PartitionNodes["debug"], "d1")
		} else if n := tx.Node("d1"); n != nil && !n.Dynamic() && len(n.Jobs) > 0 {
			return nil
		}
		withAll(to)
		tx.Emit(Reconfigured{Config: to})
		return to
	case n == nil:
		tx.Emit(NodesAdded{Nodes: []*pb.NodeRecord{made}})
	case n.Dynamic() && len(n.Jobs) == 0 && rapid.Bool().Draw(t, "remove"):
		tx.Emit(NodesRemoved{Names: []string{name}})
	case n.Dynamic() && len(n.Jobs) == 0:
		tx.Emit(NodeRedefined{Node: made})
	}
	return nil
}

// roster describes the nodes and partitions as text. A restart may change the order of dynamic nodes.
func roster(v *View) string {
	var lines []string
	for _, n := range v.Nodes() {
		lines = append(lines, fmt.Sprintf("%s: origin %q, %d MiB, %q, flags %x, in %v, index %v", n.Name,
			n.Origin, n.RealMemoryMib, n.Features,
			n.StateFlags, n.Partitions, v.Node(n.Name) == n))
	}
	for _, p := range v.Partitions() {
		names := slices.Sorted(slices.Values(v.PartitionNodes(p.Name)))
		lines = append(lines, fmt.Sprintf("%s: %v", p.Name, names))
		if p.AllNodes {
			lines = append(lines, fmt.Sprintf("  %s, %d nodes of %d", p.Nodes, p.TotalNodes, len(v.Nodes())))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// randomEvent emits one event that can be.
func randomEvent(t *rapid.T, tx *Tx) {
	var jobs []*pb.JobRecord
	for j := range tx.Jobs().All() {
		jobs = append(jobs, j)
	}
	if len(jobs) == 0 || rapid.Bool().Draw(t, "submit") {
		tx.Emit(JobSubmitted{Job: &pb.JobRecord{Id: tx.NextJobID(), Spec: &pb.JobSpec{Uid: 7}, RequestId: fmt.Sprint("r", tx.NextJobID())}})
		return
	}
	j := rapid.SampledFrom(jobs).Draw(t, "job")
	n := CloneJob(j)
	switch {
	case Pending(j):
		node := rapid.SampledFrom([]string{"n1", "n2", "n3", "d1", "d2"}).Draw(t, "node")
		at := tx.Node(node)
		if at == nil {
			return
		}
		free := at.Cpus - at.AllocCpus
		if free == 0 {
			return
		}
		core := ""
		for c := range at.Cpus {
			if set, _ := ParseCores(fmt.Sprint(c)); !at.Held.InUse().Overlaps(set) {
				core = fmt.Sprint(c)
				break
			}
		}
		n.State, n.BatchHost, n.Attempt = pb.JobState_JOB_RUNNING, node, j.Attempt+1
		n.Alloc = []*pb.NodeAlloc{{Node: node, Cpus: 1, CpuIds: core, MemMib: 10}}
		tx.Emit(JobStarted{Job: n})
	case Live(j):
		a := CloneAlloc(j.Alloc[0])
		a.Ended = true
		n.Alloc = []*pb.NodeAlloc{a}
		n.State, n.EndNs = pb.JobState_JOB_COMPLETED, tx.NowNS
		tx.Emit(JobLeftNode{Job: n, Node: a.Node})
	default:
		tx.Emit(JobForgotten{ID: j.Id})
	}
}

func TestCores(t *testing.T) {
	for _, s := range []string{"", "0", "0-3", "0-3,6", "1,3,5", "63-64", "0-127"} {
		c, err := ParseCores(s)
		if err != nil || c.String() != s {
			t.Errorf("ParseCores(%q) = %q, %v", s, c.String(), err)
		}
	}
	for _, s := range []string{"a", "3-1", "-1", "1-", "0-99999999", "1,,2"} {
		if _, err := ParseCores(s); err == nil {
			t.Errorf("ParseCores(%q) was accepted", s)
		}
	}
}

// TestOldViewsAreForgotten: the pages that a commit wrote do not keep its scripts, its events or the view before it alive.
func TestOldViewsAreForgotten(t *testing.T) {
	v := New(testConfig(0, 0), "c", 1)
	const commits, script = 200, 1 << 20
	for i := range uint32(commits) {
		tx := Begin(v, 1)
		noise := make([]byte, script)
		_, _ = rand.NewChaCha8([32]byte{byte(i)}).Read(noise)
		j, texts := &pb.JobRecord{Id: i*pageSize + 1, Spec: &pb.JobSpec{}}, textsOf(t, 0, noise)
		texts.Name(j)
		tx.Emit(JobSubmitted{Job: j, Texts: texts})
		v, _ = tx.Freeze()
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if v.Jobs.Len() != commits || m.HeapAlloc > commits*script/2 {
		t.Errorf("%d jobs keep %d MiB of the %d MiB of scripts that were committed", v.Jobs.Len(), m.HeapAlloc>>20, commits*script>>20)
	}
}

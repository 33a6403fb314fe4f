package state

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/journal"
	"github.com/sluice-hpc/sluice/internal/test/fieldtest"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// nodeFieldKinds says where each field of a node's record comes from. A new field must be added here.
var nodeFieldKinds = map[string]string{
	"configured": "addr hostname port weight cpus boards sockets cores threads real_memory_mib tmp_disk_mib core_spec mem_spec_mib " +
		"features " +
		"active_features gres cfg_tres switches origin",
	"stored": "name state state_flags reason reason_uid reason_user reason_ns boot_id boot_ns version os arch comment extra reported " +
		"strays " +
		"reboot_asap reboot_next reboot_ns launch_failures highest_job told_seq untold_ns refuses_root refuses_below power_ns " +
		"power_noded_ns " +
		"power_program",
	"passing": "noded_start_ns last_busy_ns last_seen_ns cpu_load cpu_load_known free_mem_mib alloc_cpus alloc_mem_mib alloc_tres " +
		"gres_used " +
		"gres_drain running_jobs diagnosis clock_off_ns conf_hash conf_fetched conf_error",
	"listed": "partitions", // made from the partitions at each start and reconfigure
}

// TestNodeFields: after a restart of the controller, stored fields of a node are as before, configured fields are those of slurm.conf, and
// fields derived from jobs are not read from the journal. A field of none of these kinds fails.
func TestNodeFields(t *testing.T) {
	cfg := testConfig(1, 8)
	configured := cfg.Nodes[0]
	fill(configured.ProtoReflect(), 2)
	configured.Name, configured.Gres = "n1", ""
	changed := proto.Clone(configured).(*pb.NodeRecord)
	changed.ProtoReflect().Range(func(fd protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if fd.Name() != "name" {
			changed.ProtoReflect().Clear(fd)
		}
		return true
	})
	loaded, merged := restarted(t, cfg, changed), merge(configured, &Node{NodeRecord: changed}).NodeRecord

	kinds := map[string]string{}
	for kind, names := range nodeFieldKinds {
		for _, name := range strings.Fields(names) {
			kinds[name] = kind
		}
	}
	fields := configured.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		kind := kinds[string(fd.Name())]
		delete(kinds, string(fd.Name()))
		if fd.Name() == "name" || fd.Name() == "gres" || kind == "listed" {
			continue
		}
		has := func(n *pb.NodeRecord) bool { return n.ProtoReflect().Has(fd) }
		switch kind {
		case "configured":
			if !has(loaded) || !has(merged) {
				t.Errorf("%s is set in slurm.conf: after a restart %v, after a reconfigure %v", fd.Name(), has(loaded), has(merged))
			}
		case "stored":
			if has(loaded) || has(merged) {
				t.Errorf("%s was cleared: still set after a restart %v, after a reconfigure %v", fd.Name(), has(loaded), has(merged))
			}
		case "passing":
			if !has(loaded) || has(merged) {
				t.Errorf("%s: taken from the journal %v, forgotten by a reconfigure %v", fd.Name(), !has(loaded), has(merged))
			}
		default:
			t.Errorf("%s: say in nodeFieldKinds whether it is configured, stored or passing, and handle it so in nodefields.go", fd.Name())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		t.Errorf("%s is listed as %s, but there is no such field", name, kinds[name])
	}
	fieldtest.Copies(t, (*pb.NodeRecord).Shallow, nil)
}

// TestNodeCopiedOverAnother: nothing is left of the record that was there.
func TestNodeCopiedOverAnother(t *testing.T) {
	fieldtest.Copies(t, func(n *pb.NodeRecord) *pb.NodeRecord {
		was := fieldtest.Filled[pb.NodeRecord]()
		n.ShallowTo(was)
		return was
	}, nil)
	was := fieldtest.Filled[pb.NodeRecord]()
	was.ProtoReflect().SetUnknown(later)
	if (&pb.NodeRecord{Name: "n1"}).ShallowTo(was); !proto.Equal(was, &pb.NodeRecord{Name: "n1"}) {
		t.Errorf("there is more than a name: %v", was)
	}
}

// TestStoredNodeIsWhole: each field that is stored has the same value after a restart.
func TestStoredNodeIsWhole(t *testing.T) {
	cfg := testConfig(1, 8)
	n := proto.Clone(cfg.Nodes[0]).(*pb.NodeRecord)
	fill(n.ProtoReflect(), 2)
	n.Name = "n1"
	got := restarted(t, cfg, n)
	for _, name := range strings.Fields(nodeFieldKinds["stored"]) {
		fd := n.ProtoReflect().Descriptor().Fields().ByName(protoreflect.Name(name))
		if a, b := n.ProtoReflect().Get(fd), got.ProtoReflect().Get(fd); !a.Equal(b) {
			t.Errorf("%s was %v and is %v after a restart", name, a, b)
		}
	}
}

// restarted is a node's record after a restart of the controller with cfg, having been n.
func restarted(t *testing.T, cfg *Config, n *pb.NodeRecord) *pb.NodeRecord {
	t.Helper()
	store := journal.NewMemory()
	tx := Begin(New(cfg, "c", 1), 1)
	tx.Emit(NodeChanged{Node: &Node{NodeRecord: n}, Durable: true})
	rows, err := tx.Rows()
	if err == nil {
		err = store.Commit(journal.Batch{Seq: 1, Rows: rows})
	}
	if err != nil {
		t.Fatal(err)
	}
	v, err := Load(cfg, store, "c", 1)
	if err != nil {
		t.Fatal(err)
	}
	return v.Node("n1").NodeRecord
}

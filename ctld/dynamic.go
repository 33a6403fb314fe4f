package ctld

import (
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/conf"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// newNodes parses the nodes of scontrol create, as a NodeName line of the present slurm.conf.
func (d *daemon) newNodes(names string, set []*pb.KeyValue) ([]*pb.NodeRecord, error) {
	may := func(state string) bool {
		return strings.EqualFold(state, "FUTURE") || strings.EqualFold(state, "CLOUD")
	}
	refusal := func(state string) *pb.Problem {
		return pb.NewProblem(pb.CodeInvalidNodeState, "State=%s", state).WithLead(
			"Only State=FUTURE and State=CLOUD allowed for nodes created by scontrol").WithHint("add State=FUTURE or State=CLOUD")
	}
	pairs := make([]conf.Pair, len(set))
	for i, kv := range set {
		pairs[i] = conf.Pair{Key: kv.Key, Value: kv.Value}
		if strings.EqualFold(kv.Key, "State") && !may(kv.Value) {
			return nil, refusal(kv.Value)
		}
	}
	nodes, err := d.conf.Load().NewNodes(names, pairs)
	if err != nil {
		return nil, err
	}
	out := make([]*pb.NodeRecord, len(nodes))
	for i, n := range nodes {
		if !may(n.State) {
			return nil, refusal(n.State)
		}
		out[i] = nodeRecord(n)
	}
	return out, nil
}

// foundNode makes the node of a host that joins by itself from its hardware, its --conf and NodeName=DEFAULT.
func (d *daemon) foundNode(h *pb.NodeHello) (*pb.NodeRecord, error) {
	hw := h.GetHardware()
	var found []conf.Pair
	for _, f := range []struct {
		key   string
		value uint64
	}{{"CPUs", uint64(hw.GetCpus())}, {"Boards", 1}, {"Sockets", uint64(hw.GetSockets())}, {"CoresPerSocket", uint64(hw.GetCores())},
		{"ThreadsPerCore", uint64(hw.GetThreads())}, {"RealMemory", hw.GetRealMemoryMib()}} {
		found = append(found, conf.Pair{Key: f.key, Value: strconv.FormatUint(f.value, 10)})
	}
	n, err := d.conf.Load().FoundNode(h.Node, found, h.GetDynamic().GetConf())
	if err != nil {
		return nil, err
	}
	return nodeRecord(n), nil
}

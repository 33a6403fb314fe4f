package reactor

import (
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// NodeConf: a node's configuration has changed, or the node cannot apply one.
type NodeConf struct {
	Node string
	Conf *pb.ConfigurationState
}

// Handle notes it for display.
func (c NodeConf) Handle(tx *state.Tx) any {
	old := tx.Node(c.Node)
	if old == nil {
		return nil
	}
	n := change(old)
	takeConf(n, c.Conf)
	tx.Emit(state.NodeChanged{Node: n})
	return nil
}

// takeConf stores a node's report on its configuration.
func takeConf(n *state.Node, c *pb.ConfigurationState) {
	if c != nil {
		PlainWords(c)
	}
	n.ConfHash, n.ConfFetched, n.ConfError = c.GetHash(), c.GetFetched(), c.GetError()
}

package ctld

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// ownFiles is how many descriptors the controller has besides the connections of nodes and commands: the state, logs, programs, and
// handshakes that are under way.
const ownFiles = 512

// filesDoubt says that there may be too few descriptors for a cluster of so many nodes; "" when not. The runtime has raised the limit as
// far as it can be. Each node has a connection, and one more of its relay; commands may have as many as half of all (rpc.NewLocal).
func filesDoubt(nodes int) string {
	var most unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &most); err != nil {
		return ""
	}
	return filesLack(nodes, most.Cur)
}

func filesLack(nodes int, most uint64) string {
	need := 2 * (2*uint64(nodes) + ownFiles)
	if most >= need {
		return ""
	}
	return fmt.Sprintf("the controller may open %d files, and a cluster of %d nodes needs up to %d: raise its limit (LimitNOFILE= of "+
		"the unit, ulimit -Hn), or some nodes may be unable to connect", most, nodes, need)
}

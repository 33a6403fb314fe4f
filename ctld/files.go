package ctld

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// ownFiles is the number of descriptors that the controller needs besides the connections of nodes and commands: for the state, logs,
// programs, and handshakes under way.
const ownFiles = 512

// filesDoubt returns a warning if there are too few descriptors for a cluster of that many nodes, else "". The runtime has raised the limit
// as far as possible. Each node has a connection, and one more for its relay; commands may use half of all descriptors (rpc.NewLocal).
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

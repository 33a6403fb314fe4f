package stepwire

import "sync"

// maxNames bounds what a step's tasks publish; a name counts for some bytes more than it has.
const (
	maxNames = 1 << 20
	nameCost = 64
)

// Names are those under which tasks of a step can be reached (MPI_Publish_name): where there is one node it keeps them, else srun does.
type Names struct {
	mu    sync.Mutex
	ports map[string]string
	cost  int
}

// Publish is false when the name is taken, or there are too many.
func (n *Names) Publish(name, port string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	cost := len(name) + len(port) + nameCost
	if _, taken := n.ports[name]; taken || n.cost+cost > maxNames {
		return false
	}
	if n.ports == nil {
		n.ports = map[string]string{}
	}
	n.ports[name], n.cost = port, n.cost+cost
	return true
}

// Withdraw is false when there is no such name.
func (n *Names) Withdraw(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	port, has := n.ports[name]
	if has {
		n.cost -= len(name) + len(port) + nameCost
		delete(n.ports, name)
	}
	return has
}

// Lookup gives the port of a name.
func (n *Names) Lookup(name string) (port string, found bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	port, found = n.ports[name]
	return port, found
}

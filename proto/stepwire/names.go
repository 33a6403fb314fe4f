package stepwire

import "sync"

// maxNames bounds the names that a step's tasks publish, in bytes; each name costs nameCost in addition to its length.
const (
	maxNames = 1 << 20
	nameCost = 64
)

// Names are the published names of a step's tasks (MPI_Publish_name). A single node keeps them itself, otherwise srun does.
type Names struct {
	mu    sync.Mutex
	ports map[string]string
	cost  int
}

// Publish returns false if the name is taken or there are too many.
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

// Withdraw returns false if the name does not exist.
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

// Lookup returns the port of a name.
func (n *Names) Lookup(name string) (port string, found bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	port, found = n.ports[name]
	return port, found
}

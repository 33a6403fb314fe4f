package pmi

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Limits of the data that a node keeps for its tasks.
const (
	// maxPuts bounds the values that the tasks of one node put between two fences, and maxStored all that are kept. Each pair
	// counts with some overhead.
	maxPuts   = 16 << 20
	maxStored = 64 << 20
	maxAttrs  = 1 << 20
	pairCost  = 64
)

// Job is the information about the step for its tasks.
type Job struct {
	ID      string // PMI_JOBID, and the name of the only key-value space
	Size    uint32 // number of tasks of the step
	Mapping string // PMI_process_mapping; "" = not available
}

// Pair is a key with its value.
type Pair struct{ Key, Value string }

func (p Pair) cost() int { return len(p.Key) + len(p.Value) + pairCost }

// Beyond is what a node needs from the rest of the step. The goroutines of tasks call it.
type Beyond interface {
	// Fence is called when all tasks of this node are at the fence, with their values. Node.Spread or Node.Fail follows.
	Fence(puts []Pair)
	// Left is called when a task of this node takes part in no further fence.
	Left(rank uint32)
	// Abort ends the whole step.
	Abort(rank uint32)
	// Publish, Withdraw and Lookup manage the names under which tasks can be reached.
	Publish(name, port string) bool
	Withdraw(name string)
	Lookup(name string) (port string, found bool)
	// Say shows a line to the user who started the step.
	Say(line string)
}

// Node serves the tasks of one node.
type Node struct {
	job    Job
	beyond Beyond
	over   chan struct{}
	once   sync.Once

	mu     sync.Mutex
	tasks  int // tasks that take part in fences
	puts   map[string]string
	cost   int // of puts
	stored map[string]string
	kept   int // cost of stored
	wait   []chan error
	failed error
	said   sync.Once // reports once that fences fail
	attrs  table
	await  map[string][]chan string // waiters for attributes
}

// table is a small key-value store of tasks.
type table struct {
	m    map[string]string
	cost int
	max  int
}

// New returns the Node for this number of tasks.
func New(job Job, tasks int, beyond Beyond) *Node {
	return &Node{job: job, beyond: beyond, over: make(chan struct{}), tasks: tasks, puts: map[string]string{},
		stored: map[string]string{}, attrs: table{max: maxAttrs}, await: map[string][]chan string{}}
}

// Close ends all waiting: the step is over.
func (n *Node) Close() { n.once.Do(func() { close(n.over) }) }

var (
	errFull = errors.New("out of space")
	errOver = errors.New("the step is over")
)

// put keeps a pair until the next fence.
func (n *Node) put(p Pair) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if old, has := n.puts[p.Key]; has {
		n.cost -= Pair{p.Key, old}.cost()
	}
	if n.cost+p.cost() > maxPuts {
		delete(n.puts, p.Key)
		return errFull
	}
	n.puts[p.Key], n.cost = p.Value, n.cost+p.cost()
	return nil
}

func (n *Node) get(key string) (string, bool) {
	if key == mappingKey {
		return n.job.Mapping, n.job.Mapping != ""
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	v, ok := n.stored[key]
	return v, ok
}

const mappingKey = "PMI_process_mapping"

// fence enters a task into the current fence and returns the channel on which it waits for the others.
func (n *Node) fence() (<-chan error, error) {
	n.mu.Lock()
	if n.failed != nil {
		defer n.mu.Unlock()
		return nil, n.failed
	}
	done := make(chan error, 1)
	n.wait = append(n.wait, done)
	if len(n.wait) < n.tasks {
		n.mu.Unlock()
		return done, nil
	}
	puts := make([]Pair, 0, len(n.puts))
	for _, k := range slices.Sorted(maps.Keys(n.puts)) {
		puts = append(puts, Pair{k, n.puts[k]})
	}
	n.puts, n.cost = map[string]string{}, 0
	n.mu.Unlock()
	n.beyond.Fence(puts)
	return done, nil
}

// Spread ends a fence with the values of all nodes' tasks, including this one's.
func (n *Node) Spread(puts []Pair) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range puts {
		if old, has := n.stored[p.Key]; has {
			n.kept -= Pair{p.Key, old}.cost()
		}
		if n.kept+p.cost() > maxStored {
			delete(n.stored, p.Key)
			n.fail(fmt.Errorf("the tasks have put more than %d bytes", maxStored))
			return
		}
		n.stored[p.Key], n.kept = p.Value, n.kept+p.cost()
	}
	n.release(nil)
}

// Fail makes this fence and all later ones fail: some node will never reach them.
func (n *Node) Fail(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fail(err)
}

func (n *Node) fail(err error) {
	if n.failed == nil {
		n.failed = err
	}
	n.release(n.failed)
}

// left handles a task that has ended or broken the protocol. Fences include all tasks, so none can complete any more.
func (n *Node) left(rank uint32) {
	n.Fail(fmt.Errorf("task %d takes part no more", rank))
	n.beyond.Left(rank)
}

func (n *Node) release(err error) {
	for _, done := range n.wait {
		done <- err
	}
	n.wait = nil
}

// set stores a value in a table. The lock is held.
func (t *table) set(key, value string) error {
	if old, has := t.m[key]; has {
		t.cost -= Pair{key, old}.cost()
		delete(t.m, key)
	}
	p := Pair{key, value}
	if t.cost+p.cost() > t.max {
		return errFull
	}
	if t.m == nil {
		t.m = map[string]string{}
	}
	t.m[key], t.cost = value, t.cost+p.cost()
	return nil
}

// setAttr stores an attribute of this node, which its tasks share.
func (n *Node) setAttr(key, value string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.attrs.set(key, value); err != nil {
		return err
	}
	for _, c := range n.await[key] {
		c <- value
	}
	delete(n.await, key)
	return nil
}

// attr returns an attribute of this node, or a channel to wait for it.
func (n *Node) attr(key string, wait bool) (value string, found bool, later <-chan string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	value, found = n.attrs.m[key]
	if found || !wait {
		return value, found, nil
	}
	c := make(chan string, 1)
	n.await[key] = append(n.await[key], c)
	return "", false, c
}

package state

import (
	"slices"

	"github.com/sluice-hpc/sluice/ctld/journal"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Tx is the working state of one commit: the last View with the changes of this batch. Only the writer has one, and only one at a time.
// Freeze turns it into the next View.
type Tx struct {
	Seq   uint64
	NowNS int64
	// Room is the number of bytes that users may still store before the disk of the state is short. The loop sets it.
	Room int64

	base    *View
	token   *token
	next    View
	dirty   map[uint32]bool // jobs put; true = the row must be written
	nodes   map[string]bool // node records put; true = the row must be written
	parts   map[string]bool
	wake    map[string]struct{} // nodes whose orders may have changed
	copied  struct{ nodes, parts, index bool }
	grouped map[string]bool // partitions whose nodes have changed

	texts     map[TextKey][]byte         // texts to store; nil = delete
	resvs     map[string]bool            // reservations put or removed
	crontabs  map[uint32]bool            // crontabs put or removed, by uid
	tokens    map[string]bool            // join tokens put or removed, by id
	hosts     map[string]bool            // certificates of hosts put, by name
	policy    map[string]bool            // rows of the policy put or removed, by key
	loading   *PolicyDraft               // the policy while rows are loaded
	uncounted bool                       // use is counted once all rows are loaded
	outbox    map[Attempt]*pb.JobRecord  // attempts that accounting has still to store; nil = stored
	stepped   map[uint32]bool            // jobs whose steps have changed
	stepRows  map[StepKey]*pb.StepRecord // rows of steps to write; nil = delete
	stepsKept []StepKey                  // steps that only have their rows from now on
	events    []Event
	must      bool // a change that must be recorded even on a full disk
	roster    bool // nodes were added, removed or redefined
	structure bool // nodes, partitions or settings changed: everything has to be looked at again
	spent     int
}

// Begin opens a transaction on a view. nowNS is the time of every command in the batch: the current one, even if it precedes the view's
// (clock.go).
func Begin(v *View, nowNS int64) *Tx {
	tx := &Tx{token: new(token), Seq: v.Seq + 1, NowNS: nowNS, Room: journal.Ample, base: v, next: *v, dirty: map[uint32]bool{},
		nodes: map[string]bool{}, parts: map[string]bool{}, wake: map[string]struct{}{}}
	tx.next.Seq, tx.next.NowNS, tx.next.Outbox, tx.next.StepOutbox = tx.Seq, nowNS, nil, nil
	if v.Policy().hoursTurn(nowNS, v.Settings) {
		tx.Emit(HoursTurned{})
	}
	return tx
}

// Emit applies an event to the working state and keeps it for logs and metrics.
func (tx *Tx) Emit(e Event) {
	tx.Spend(UnitsOfEvent)
	e.apply(tx)
	tx.events = append(tx.events, e)
}

// UnitsOfEvent is the cost of an event: its copy of a record, the indexes, the encoded row and its part of the commit.
const UnitsOfEvent = 25

// Spend counts work of the writer, in units of a microsecond at most: BenchmarkUnits of reactor gives 0.1 to 1.3 without the commit. The
// cost of a command is counted rather than measured, so that the same commands take the same turns everywhere.
func (tx *Tx) Spend(units int) { tx.spent += units }

// Spent returns the cost of this batch so far.
func (tx *Tx) Spent() int { return tx.spent }

// Job, Node, Partition and the like read the working state.
func (tx *Tx) Job(id uint32) *pb.JobRecord               { return tx.next.Jobs.Get(id) }
func (tx *Tx) Jobs() *Jobs                               { return tx.next.Jobs }
func (tx *Tx) Node(name string) *Node                    { return tx.next.Node(name) }
func (tx *Tx) Nodes() []*Node                            { return tx.next.nodes }
func (tx *Tx) Partition(name string) *pb.PartitionRecord { return tx.next.Partition(name) }
func (tx *Tx) Partitions() []*pb.PartitionRecord         { return tx.next.parts }
func (tx *Tx) PartitionNodes(name string) []string       { return tx.next.partNodes[name] }
func (tx *Tx) DefaultPartition() string                  { return tx.next.Default }
func (tx *Tx) Settings() *Settings                       { return tx.next.Settings }
func (tx *Tx) JobByRequest(id string) uint32             { return tx.next.writer.requests[id] }
func (tx *Tx) NextJobID() uint32                         { return tx.next.NextJobID }
func (tx *Tx) UserJobs(uid uint32) int                   { return tx.next.writer.userJobs[uid] }
func (tx *Tx) Events() []Event                           { return tx.events }

// Reservation and Reservations read the working state.
func (tx *Tx) Reservation(name string) *pb.ReservationRecord { return tx.next.Reservation(name) }
func (tx *Tx) Reservations() []*pb.ReservationRecord         { return tx.next.resvs }

// View returns the working state as a View, for code that only reads. It must not be kept.
func (tx *Tx) View() *View { return &tx.next }

// putJob stores a record. durable = false for fields that are only displayed (a waiting reason, an expected start): they are recomputed
// after a restart and never written.
func (tx *Tx) putJob(j *pb.JobRecord, durable bool) {
	if tx.next.Jobs == tx.base.Jobs {
		tx.next.Jobs = tx.base.Jobs.clone()
	}
	old := tx.next.Jobs.Get(j.Id)
	tx.reindex(old, j)
	tx.noteEnd(old, j)
	tx.countBytes(old, j)
	tx.countUse(old, j)
	tx.countTime(old, j)
	tx.next.Jobs.put(tx, j.Id, j)
	tx.dirty[j.Id] = tx.dirty[j.Id] || durable
	for _, a := range j.Alloc {
		if !a.Ended {
			tx.wake[a.Node] = struct{}{}
		}
	}
}

func (tx *Tx) deleteJob(id uint32) {
	if tx.next.Jobs == tx.base.Jobs {
		tx.next.Jobs = tx.base.Jobs.clone()
	}
	old := tx.next.Jobs.Get(id)
	tx.reindex(old, nil)
	tx.noteEnd(old, nil)
	if old != nil {
		tx.countBytes(old, nil)
		tx.countUse(old, nil)
		tx.countTime(old, nil)
	}
	tx.next.Jobs.put(tx, id, nil)
	tx.dirty[id] = true
}

func (tx *Tx) putNode(n *Node, durable bool) {
	if !tx.copied.nodes {
		tx.next.nodes = slices.Clone(tx.next.nodes)
		tx.copied.nodes = true
	}
	at := tx.next.nodeIndex[n.Name]
	if !sameLayout(tx.next.nodes[at], n) {
		tx.relayout()
	}
	tx.next.nodes[at] = n
	tx.nodes[n.Name] = tx.nodes[n.Name] || durable
}

func (tx *Tx) rememberRequest(reqID string, job uint32) {
	if reqID != "" {
		tx.next.writer.requests[reqID] = job
	}
}

// RequestMemoryNS is the least time for which the request that made a job is remembered: a command that has lost its answer sends it again,
// and must not make a second job.
const RequestMemoryNS = 120e9

// retired is a request whose job was forgotten early.
type retired struct {
	id  string
	job uint32
	at  int64 // when it was made
}

// retireRequest remembers the request of a forgotten job. This memory does not outlive the controller.
func (tx *Tx) retireRequest(j *pb.JobRecord) {
	if j.RequestId == "" {
		return
	}
	w := tx.next.writer
	w.retired = append(w.retired, retired{j.RequestId, j.Id, j.SubmitNs})
	for len(w.retired) > 0 {
		if r := w.retired[0]; tx.NowNS-r.at < RequestMemoryNS && len(w.retired) <= maxRetired {
			return
		}
		delete(w.requests, w.retired[0].id)
		w.retired = w.retired[1:]
	}
}

// maxRetired bounds the number of such requests.
const maxRetired = 1 << 16

// wakeNode makes the dispatcher look at a node again.
func (tx *Tx) wakeNode(name string) { tx.wake[name] = struct{}{} }

// Durable reports whether the batch has anything to write.
func (tx *Tx) Durable() bool {
	for _, d := range tx.dirty {
		if d {
			return true
		}
	}
	for _, d := range tx.nodes {
		if d {
			return true
		}
	}
	return len(tx.parts) > 0 || len(tx.texts) > 0 || len(tx.resvs) > 0 || len(tx.crontabs) > 0 ||
		len(tx.outbox) > 0 || len(tx.stepRows) > 0 || len(tx.tokens) > 0 || len(tx.hosts) > 0 || len(tx.policy) > 0
}

// Must reports whether the batch records facts (an end, a requeue): it has to be written even when the disk is full, from the reserve.
func (tx *Tx) Must() bool { return tx.must }

// Freeze publishes the working state: it returns the new View and the change that made it.
func (tx *Tx) Freeze() (*View, Change) {
	tx.measureGrouped()
	tx.countAwaited()
	c := Change{Structure: tx.structure || tx.roster, Roster: tx.roster && !tx.structure, Events: tx.events}
	for id, durable := range tx.dirty {
		c.Jobs = append(c.Jobs, id)
		if durable {
			c.Stored = append(c.Stored, id)
		}
	}
	c.Kept, c.StepsKept = tx.attemptsKept(), tx.stepsKept
	for id := range tx.stepped {
		c.Stepped = append(c.Stepped, id)
	}
	slices.Sort(c.Stepped)
	for k, s := range tx.stepRows {
		if s != nil {
			c.StepsStored = append(c.StepsStored, k)
		}
	}
	slices.Sort(c.Jobs)
	for n := range tx.nodes {
		if tx.Node(n) != nil { // not one that was removed
			c.Nodes = append(c.Nodes, n)
		}
	}
	for n := range tx.wake {
		c.Wake = append(c.Wake, n)
	}
	slices.Sort(c.Nodes)
	slices.Sort(c.Wake)
	v := tx.next
	c.View = &v
	return &v, c
}

// countAwaited counts the nodes that have still to report what they ran before a restore. When the last one has, the jobs that waited for
// this may start.
func (tx *Tx) countAwaited() {
	before := tx.base.awaited
	if before == 0 && !tx.roster && !tx.structure {
		return
	}
	tx.next.awaited = len(tx.next.Awaited())
	tx.roster = tx.roster || before > 0 && tx.next.awaited == 0
}

// Change describes a commit to observers that keep derived data.
type Change struct {
	View    *View
	Jobs    []uint32  // ids put or deleted, ascending
	Stored  []uint32  // those of them whose rows were written, in no order
	Kept    []Attempt // attempts whose records are now only in the outbox
	Stepped []uint32  // jobs whose steps changed, ascending
	// StepsStored are the steps whose rows were written; StepsKept are those that only have their rows from now on. Both in no order.
	StepsStored, StepsKept []StepKey

	Nodes     []string // node records put
	Wake      []string // nodes whose orders may have changed
	Structure bool     // nodes, partitions or settings: look at everything again
	Roster    bool     // nodes were added, removed or redefined, and nothing else changed: Wake names them, the other nodes get nothing new
	Events    []Event  // in order; not to be changed
}

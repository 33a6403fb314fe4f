package state

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/ctld/journal"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// Times in records are wall clock times, and the clock may be set while jobs wait and run. Order therefore never rests on them: commits
// have numbers, jobs have ids. Only ages and durations rest on them. So when the clock is set, the times that the controller itself noted
// move with it, except in records that have ended: a job that has run for ten minutes has still run for ten minutes. Times that people set
// (begin times, deadlines, reservations) stay.
//
// CLOCK_BOOTTIME reveals a changed clock (ClockRecord): the difference of the two clocks has changed. A change across a reboot of the
// controller's machine cannot be seen; times of an earlier boot that lie in the future are then set to the present.
//
// Times are moved in memory only: rows of jobs say by which clock they were written (ClockNs, ClockBoot) and are moved when they are
// loaded. Rewriting every job because somebody set the clock would be the largest commit of the controller's life. Rows of nodes,
// reservations and tokens, and the next runs of crontabs, carry no clock: they are written together with the record of the clock
// (WriteWithClock), so that the disk is always of one clock. While the disk is full the change stays in memory: it must not cause the next
// command to be refused, for instance a node's report that writes nothing.

// ClockSet: the controller looks at the clock for the first time in this boot, or somebody has set the clock.
type ClockSet struct {
	Clock *pb.ClockRecord
	ByNS  int64 // the change of the clock; 0: the first look
}

func (e ClockSet) apply(tx *Tx) {
	old := tx.next.clock
	c := tx.between(old, e.Clock)
	tx.next.clock, tx.structure = e.Clock, true
	if tx.next.clockUnsaved == nil {
		tx.next.clockUnsaved = &clockRows{}
	}
	var jobs []*pb.JobRecord
	for j := range tx.Jobs().All() {
		if n := c.job(j, tx); n != j {
			jobs = append(jobs, n)
		}
	}
	for _, j := range jobs {
		tx.putJob(j, false)
	}
	for _, n := range tx.Nodes() {
		moved := *n
		moved.NodeRecord = CloneNode(n.NodeRecord)
		rebooted := c.past(&moved.RebootNs)
		rebooted = c.past(&moved.PowerNs) || rebooted
		if c.past(&moved.LinkNS) || rebooted || c.past(&moved.LastSeenNs) || c.past(&moved.LastBusyNs) {
			tx.putNode(&moved, rebooted)
		}
	}
	tx.moveSteps(c)
	tx.moveTokens(c)
	for _, r := range tx.Reservations() {
		moved := CloneReservation(r)
		if c.past(&moved.IdleNs) {
			tx.putResv(r.Name, moved)
		}
	}
	if old.GetBootId() != e.Clock.BootId { // ended jobs keep their age by the wall clock, the only one that the two boots share
		for id := range tx.next.writer.ended { // computed from the records, because it is repeated when the commit is refused
			if j := tx.Jobs().Get(id); j != nil && !Active(j) {
				tx.next.writer.ended[id] = min(j.EndNs, tx.NowNS) - e.Clock.OffsetNs
			}
		}
	}
}

// Attrs gives the change of the clock.
func (e ClockSet) Attrs() []any {
	if e.ByNS == 0 {
		return nil
	}
	return []any{"by", time.Duration(e.ByNS).Round(time.Millisecond)}
}

// Clock returns the record of the clock when the view was made; nil before the first look.
func (v *View) Clock() *pb.ClockRecord { return v.clock }

// Steady converts a wall clock time of today's clock to CLOCK_BOOTTIME, which cannot be set; Wall is the inverse. Both return their
// argument where CLOCK_BOOTTIME is not used.
func (v *View) Steady(wallNS int64) int64 { return wallNS - v.clock.GetOffsetNs() }
func (v *View) Wall(steadyNS int64) int64 { return steadyNS + v.clock.GetOffsetNs() }

// EndedAgo returns the time since a job ended, by a clock that cannot be set.
func (tx *Tx) EndedAgo(j *pb.JobRecord) int64 {
	if at, ok := tx.next.writer.ended[j.Id]; ok {
		return max(0, tx.next.Steady(tx.NowNS)-at)
	}
	return max(0, tx.NowNS-j.EndNs)
}

// noteEnd keeps the CLOCK_BOOTTIME at which a job ended.
func (tx *Tx) noteEnd(old, fresh *pb.JobRecord) {
	switch ended := tx.next.writer.ended; {
	case fresh != nil && !Active(fresh):
		if old == nil || Active(old) {
			ended[fresh.Id] = tx.next.Steady(tx.NowNS)
		}
	case old != nil:
		delete(ended, old.Id)
	}
}

// setting describes the effect of a change of the clock: times from fromNS on are of this boot and move by byNS; earlier ones are capped at
// sinceNS, the beginning of this boot's record.
type setting struct{ fromNS, byNS, sinceNS int64 }

func (tx *Tx) between(old, now *pb.ClockRecord) setting {
	if old.GetBootId() != now.BootId {
		return setting{fromNS: now.SinceNs, sinceNS: now.SinceNs}
	}
	by := now.OffsetNs - old.OffsetNs
	return setting{fromNS: now.SinceNs - by, byNS: by, sinceNS: now.SinceNs}
}

// past moves a time that lay in the past when it was noted, and reports whether that changed it. 0 is no time.
func (c setting) past(ns *int64) bool {
	was := *ns
	switch {
	case was == 0:
	case was >= c.fromNS && c.byNS != 0:
		*ns += c.byNS
	case was > c.sinceNS:
		*ns = c.sinceNS
	}
	return *ns != was
}

// future moves a time that lay up to aheadNS in the future when it was noted, and reports whether that changed it.
func (c setting) future(ns *int64, aheadNS int64) bool {
	was := *ns
	switch {
	case was == 0:
	case was >= c.fromNS && c.byNS != 0:
		*ns += c.byNS
	case was > c.sinceNS+aheadNS:
		*ns = c.sinceNS + aheadNS
	}
	return *ns != was
}

// job returns a record with its times moved, or the same record when none moved.
func (c setting) job(j *pb.JobRecord, tx *Tx) *pb.JobRecord {
	if !Active(j) {
		return j
	}
	n := CloneJob(j)
	begin := n.Spec.GetBeginNs()
	asked := begin != 0 && !n.BeginDelayed // set by the user
	moved := c.past(&n.SubmitNs)
	for _, ns := range []*int64{&n.EligibleNs, &n.AccrueNs} {
		switch {
		case asked && *ns == begin:
		case n.BeginDelayed:
			moved = c.future(ns, c.delay(tx)) || moved
		default:
			moved = c.past(ns) || moved
		}
	}
	if n.BeginDelayed && c.future(&begin, c.delay(tx)) {
		n.Spec, moved = CloneSpec(n.Spec), true
		n.Spec.BeginNs = begin
	}
	started := n.StartNs
	moved = c.past(&n.StartNs) || moved
	if n.EndNs != 0 {
		if started >= c.fromNS && c.byNS != 0 || started != n.StartNs { // the end moves with the start, even if the limit was changed
			n.EndNs, moved = n.EndNs+n.StartNs-started, true
		} else if n.StopReason != "" { // the job is ending: its end is a moment, not a limit
			moved = c.past(&n.EndNs) || moved
		}
	}
	moved = c.past(&n.SuspendNs) || moved
	moved = c.past(&n.LastSchedNs) || moved
	moved = c.future(&n.PreemptNs, graceOf(tx, n)*1e9) || moved
	if n.ExpectedStartNs != 0 && moved {
		n.ExpectedStartNs += c.byNS // until the planner sets it anew
	}
	if !moved {
		return j
	}
	return n
}

// graceOf returns the longest grace time of a preempted job. PreemptType decides between the partition's and the QOS's; the larger one
// bounds both.
func graceOf(tx *Tx, j *pb.JobRecord) int64 {
	grace := int64(tx.Partition(j.Partition).GetGraceTimeS())
	for _, v := range tx.Policy().QOS(strings.ToLower(j.Spec.GetQos())).GetValues() {
		if v.Name == "GraceTime" {
			grace = max(grace, int64(v.Value))
		}
	}
	return grace
}

// delay returns how far in the future a requeued job may begin.
func (c setting) delay(tx *Tx) int64 { return int64(tx.Settings().RequeueDelayS) * 1e9 }

// clockKey is the row of the clock in the bucket Meta.
var clockKey = []byte("clock")

// clockRows names the rows that a change of the clock has moved and that are not in the journal yet. Immutable.
type clockRows struct {
	jobs                        map[uint32]bool
	nodes, tokens, reservations map[string]bool
}

// and returns the rows of c together with those of the transaction. c may be nil.
func (c *clockRows) and(tx *Tx) clockRows {
	if c == nil {
		return clockRows{tx.dirty, tx.nodes, tx.tokens, tx.resvs}
	}
	return clockRows{either(c.jobs, tx.dirty), either(c.nodes, tx.nodes), either(c.tokens, tx.tokens), either(c.reservations, tx.resvs)}
}

// either returns the keys that are true in one of the maps.
func either[K comparable](a, b map[K]bool) map[K]bool {
	out := map[K]bool{}
	for _, m := range []map[K]bool{a, b} {
		for k, is := range m {
			if is {
				out[k] = true
			}
		}
	}
	return out
}

// WriteWithClock leaves the changes of this batch so far to the commit that writes the record of the clock: they alone do not cause a
// commit. It follows ClockSet and its consequences, before any command.
func (tx *Tx) WriteWithClock() {
	rows := tx.next.clockUnsaved.and(tx)
	tx.next.clockUnsaved = &rows
	for id := range tx.dirty {
		tx.dirty[id] = false
	}
	for name := range tx.nodes {
		tx.nodes[name] = false
	}
	tx.tokens, tx.resvs = nil, nil
}

// ClockUnsaved reports whether the record of the clock has still to be written.
func (tx *Tx) ClockUnsaved() bool { return tx.next.clockUnsaved != nil }

// ClockSaved notes that the record of the clock was written, with the rows that depend on it.
func (tx *Tx) ClockSaved() {
	if c := tx.next.clockUnsaved; c != nil {
		for id := range c.jobs {
			tx.dirty[id] = true // for Change.Stored
		}
	}
	tx.next.clockUnsaved = nil
}

// clockRow adds the row of the clock, if it has changed.
func (tx *Tx) clockRow(rows []journal.Row) ([]journal.Row, error) {
	if tx.next.clockUnsaved == nil {
		return rows, nil
	}
	row, err := encode(journal.Meta, clockKey, tx.next.clock)
	return append(rows, row), err
}

func (tx *Tx) loadClock(value []byte) error {
	c := &pb.ClockRecord{}
	err := proto.Unmarshal(value, c)
	tx.next.clock = c
	return err
}

// stamp encodes the clock by which a job's row is written; records in memory do not have it.
func (tx *Tx) stamp() []byte {
	if tx.next.clock == nil {
		return nil
	}
	b, err := proto.Marshal(&pb.JobRecord{ClockNs: tx.next.clock.OffsetNs, ClockBoot: bootHash(tx.next.clock.BootId)})
	if err != nil {
		panic("two numbers cannot be encoded: " + err.Error())
	}
	return b
}

// jobRow makes the row of a job. Protobuf reads two concatenated messages as one, so the stamp costs no copy of the record.
func (tx *Tx) jobRow(id uint32, stamp []byte) (journal.Row, error) {
	j := tx.Job(id)
	if j == nil {
		return journal.Row{Bucket: journal.Jobs, Key: jobKey(id)}, nil
	}
	v, err := proto.MarshalOptions{}.MarshalAppend(slices.Clip(stamp), j)
	if err != nil {
		return journal.Row{}, fmt.Errorf("cannot encode a row of %v: %w: %w", journal.Jobs, err, journal.ErrBatch)
	}
	return journal.Row{Bucket: journal.Jobs, Key: jobKey(id), Value: v}, nil
}

func bootHash(id string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id))
	return h.Sum64()
}

// inTime moves the times of a row that was written by an earlier clock to the clock of the view.
func (tx *Tx) inTime(j *pb.JobRecord) *pb.JobRecord {
	c := tx.next.clock
	wrote, boot := j.ClockNs, j.ClockBoot
	j.ClockNs, j.ClockBoot = 0, 0
	if c == nil || boot == bootHash(c.BootId) && wrote == c.OffsetNs {
		return j
	}
	old := &pb.ClockRecord{}
	if boot == bootHash(c.BootId) {
		old.BootId, old.OffsetNs = c.BootId, wrote
	}
	return tx.between(old, c).job(j, tx)
}

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

// Times in records are of the wall clock of the moment at which they were noted, and that clock may be set while jobs wait and run. Order
// therefore never rests on them: commits have numbers, jobs have ids. What rests on them is how long ago something was. So when the clock
// is set, the times that the controller itself has noted of what is not over yet are moved with it: a job that has run for ten minutes has
// run for ten minutes. What people have said (begin times, deadlines, reservations) stays what they said, and so does the record of what
// has ended.
//
// That the clock was set is seen by CLOCK_BOOTTIME (ClockRecord): the difference of the two clocks has changed. It cannot be seen across a
// reboot of the controller's machine; times of an earlier boot that lie in the future then are taken back to the present.
//
// Moving is done in memory alone: rows say by which clock they were written (ClockNs, ClockBoot) and are moved when they are loaded. To
// write every job again because somebody set the clock would be the largest commit of the controller's life. Rows of nodes, reservations
// and tokens, and the next runs of crontabs, say nothing of a clock: they are written together with its record (WriteWithClock), so that
// what is on disk is always of one clock. Until there is room for that it is changed in memory alone: a full disk must not have whatever
// comes next refused, which may be a node's report with nothing to write in it.

// ClockSet: the controller looks at the clock of this boot for the first time, or somebody has set it.
type ClockSet struct {
	Clock *pb.ClockRecord
	ByNS  int64 // somebody has set it by so much
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
	if old.GetBootId() != e.Clock.BootId { // what has ended keeps its age by the wall clock, the only one that they have in common
		for id := range tx.next.writer.ended { // from the records, as this is done again when the commit is refused
			if j := tx.Jobs().Get(id); j != nil && !Active(j) {
				tx.next.writer.ended[id] = min(j.EndNs, tx.NowNS) - e.Clock.OffsetNs
			}
		}
	}
}

// Attrs says by how much somebody has set the clock.
func (e ClockSet) Attrs() []any {
	if e.ByNS == 0 {
		return nil
	}
	return []any{"by", time.Duration(e.ByNS).Round(time.Millisecond)}
}

// Clock is what was known of the clock when the view was made; nil when nobody has looked.
func (v *View) Clock() *pb.ClockRecord { return v.clock }

// Steady is CLOCK_BOOTTIME at a moment of the clock as it is now, which goes on evenly whatever is done to the clock; Wall is the inverse.
// Where nobody looks at CLOCK_BOOTTIME, both are the same.
func (v *View) Steady(wallNS int64) int64 { return wallNS - v.clock.GetOffsetNs() }
func (v *View) Wall(steadyNS int64) int64 { return steadyNS + v.clock.GetOffsetNs() }

// EndedAgo is how long a job that has ended has done so, measured by what nobody can set.
func (tx *Tx) EndedAgo(j *pb.JobRecord) int64 {
	if at, ok := tx.next.writer.ended[j.Id]; ok {
		return max(0, tx.next.Steady(tx.NowNS)-at)
	}
	return max(0, tx.NowNS-j.EndNs)
}

// noteEnd keeps the moment at which a job ended, by CLOCK_BOOTTIME.
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

// setting is what a change of the clock does to times: from which moment on they are of this boot, and by how much those are moved;
// others are not later than sinceNS, the beginning of what is known of this boot.
type setting struct{ fromNS, byNS, sinceNS int64 }

func (tx *Tx) between(old, now *pb.ClockRecord) setting {
	if old.GetBootId() != now.BootId {
		return setting{fromNS: now.SinceNs, sinceNS: now.SinceNs}
	}
	by := now.OffsetNs - old.OffsetNs
	return setting{fromNS: now.SinceNs - by, byNS: by, sinceNS: now.SinceNs}
}

// past moves a time that was in the past when it was noted, and reports whether that changed it. 0 is no time.
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

// future moves a time that was to come when it was noted, at most so far ahead.
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

// job is a record with its times moved, the same record when none is.
func (c setting) job(j *pb.JobRecord, tx *Tx) *pb.JobRecord {
	if !Active(j) {
		return j
	}
	n := CloneJob(j)
	begin := n.Spec.GetBeginNs()
	asked := begin != 0 && !n.BeginDelayed // by somebody, in so many words
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
		if started >= c.fromNS && c.byNS != 0 || started != n.StartNs { // its end goes with its start, however the limit was changed
			n.EndNs, moved = n.EndNs+n.StartNs-started, true
		} else if n.StopReason != "" { // it is on its way out: that was a moment, not a limit
			moved = c.past(&n.EndNs) || moved
		}
	}
	moved = c.past(&n.SuspendNs) || moved
	moved = c.past(&n.LastSchedNs) || moved
	moved = c.future(&n.PreemptNs, graceOf(tx, n)*1e9) || moved
	if n.ExpectedStartNs != 0 && moved {
		n.ExpectedStartNs += c.byNS // until the planner says it anew
	}
	if !moved {
		return j
	}
	return n
}

// graceOf is the most that a preempted job has until it has to end: PreemptType says whether its partition or its QOS gives it.
func graceOf(tx *Tx, j *pb.JobRecord) int64 {
	grace := int64(tx.Partition(j.Partition).GetGraceTimeS())
	for _, v := range tx.Policy().QOS(strings.ToLower(j.Spec.GetQos())).GetValues() {
		if v.Name == "GraceTime" {
			grace = max(grace, int64(v.Value))
		}
	}
	return grace
}

// delay is how far ahead a requeued job's begin may be.
func (c setting) delay(tx *Tx) int64 { return int64(tx.Settings().RequeueDelayS) * 1e9 }

// clockKey is the row of the clock in the bucket Meta.
var clockKey = []byte("clock")

// clockRows name the rows that a change of the clock has moved and that are not in the journal yet. Immutable.
type clockRows struct {
	jobs                        map[uint32]bool
	nodes, tokens, reservations map[string]bool
}

// and are the rows of c and those that a batch puts besides; false: nothing to write. c may be nil.
func (c *clockRows) and(tx *Tx) clockRows {
	if c == nil {
		return clockRows{tx.dirty, tx.nodes, tx.tokens, tx.resvs}
	}
	return clockRows{either(c.jobs, tx.dirty), either(c.nodes, tx.nodes), either(c.tokens, tx.tokens), either(c.reservations, tx.resvs)}
}

// either is what is true in one of the two.
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

// WriteWithClock leaves what this batch has changed so far to the commit that writes the record of the clock: the batch is not written for
// its sake. It comes after ClockSet and what follows from that, before any command.
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

// ClockUnsaved reports whether the record of the clock is still to be written, ClockSaved says that it has been, with what goes by it.
func (tx *Tx) ClockUnsaved() bool { return tx.next.clockUnsaved != nil }

// ClockSaved see ClockUnsaved.
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

// stamp is what rows of jobs say of the clock they were written by; their records in memory leave it out.
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

// jobRow is the row of a job. Two messages one behind the other are one message to protobuf, so the stamp costs no copy of the record.
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

// inTime brings a row that was written by an earlier clock to the one that the view goes by.
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

package simtest

import (
	"math"
	"slices"
	"time"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// stream is one stream between a node daemon and a controller. Each direction keeps its order. A cut loses messages under way,
// and each end notices it in its own time, so messages of an old stream may arrive after the hello of the next.
type stream struct {
	s     *sim
	d     *daemon
	c     *controller
	id    int
	cutNS int64 // nothing arrives from this moment on

	lastUp, lastDown int64 // when the last message arrives
	session          *session
}

func (s *sim) openStream(d *daemon) *stream {
	s.streams++
	st := &stream{s: s, d: d, c: s.ctl, id: s.streams, cutNS: math.MaxInt64}
	d.m.streams = append(d.m.streams, st)
	s.logf("%s opens stream %d", d.m.name, st.id)
	return st
}

func (st *stream) arrival(last *int64) (int64, bool) {
	at := max(*last, st.s.now+int64(st.s.short(st.s.faults.latency)))
	if st.cutNS <= st.s.now || at >= st.cutNS {
		return 0, false
	}
	*last = at
	return at, true
}

// up sends to the controller.
func (st *stream) up(m *pb.NodeReport) {
	at, ok := st.arrival(&st.lastUp)
	if !ok {
		return
	}
	st.s.at(at, func() {
		if at >= st.cutNS || st.c.dead {
			return
		}
		st.s.logf("ctld <- %s/%d %s", st.d.m.name, st.id, reportWords(m))
		st.c.heard(st, m)
	})
}

// down sends to the node. A daemon takes messages of its current stream only. Occasionally one arrives twice, and late, which the
// agent must tolerate, except orders that suspend or resume a step: the last of these counts, and a stream keeps their order.
func (st *stream) down(m *pb.NodeOrders) {
	at, ok := st.arrival(&st.lastDown)
	if !ok {
		return
	}
	deliver := func() {
		if at >= st.cutNS || st.d.dead || st.d.stream != st {
			return
		}
		st.s.logf("%s/%d <- ctld %s", st.d.m.name, st.id, orderWords(m))
		st.d.ordered(m)
	}
	st.s.at(at, deliver)
	if st.s.faulty(st.s.faults.duplicate) && !m.Full && // an old full list would describe the past
		!slices.ContainsFunc(m.Steps, func(o *pb.StepOrder) bool { return o.Want == pb.StepWant_WANT_RUN && o.Launch == nil }) {
		st.s.at(at+int64(st.s.short(5*time.Second)), deliver)
	}
}

// cut breaks the stream. node and ctl bound how long the ends take to notice.
func (st *stream) cut(node, ctl time.Duration) {
	if st.cutNS != math.MaxInt64 {
		return
	}
	s := st.s
	st.cutNS = s.now + int64(s.short(s.faults.latency))
	s.after(s.between(0, node), func() { st.d.lost(st) })
	s.after(s.between(0, ctl), func() {
		if st.session != nil {
			st.session.close()
		}
	})
}

package placement

import (
	"github.com/sluice-hpc/sluice/sched/index"
	"github.com/sluice-hpc/sluice/sched/record"
)

// Placer finds the nodes that can take a job, how well each does now, and the cores and devices that the job would get.
type Placer struct {
	params *record.Params
	ix     *index.Index
	frag   *fragmentation

	requests []*record.Request
	reqByPtr map[*record.Request]int32
	reqByKey map[string]int32
	shapes   map[shapeKey]*Shape

	Probes  int // (job, node) questions in the current pass
	buffers map[int][]int64
}

// New returns a Placer over the nodes of an index. It reads params at each question.
func New(params *record.Params, ix *index.Index) *Placer {
	return &Placer{
		params:   params,
		ix:       ix,
		frag:     &fragmentation{params: params, ix: ix},
		reqByPtr: map[*record.Request]int32{},
		reqByKey: map[string]int32{},
		shapes:   map[shapeKey]*Shape{},
		buffers:  map[int][]int64{},
	}
}

// Measure starts anew, for other nodes or typical requests.
func (pl *Placer) Measure(in *record.Snapshot) { pl.frag.measure(in.Typical) }

// Restructured reports whether nodes have to be measured anew.
func (pl *Placer) Restructured(in *record.Snapshot) bool { return pl.frag.replaced(in.Typical) }

// Remembers reports whether more than most shapes are known.
func (pl *Placer) Remembers(most int) bool { return len(pl.shapes) > most }

// Intern gives equal requests one number.
func (pl *Placer) Intern(r *record.Request) int32 {
	if r == nil {
		r = &record.Request{}
	}
	if id, ok := pl.reqByPtr[r]; ok {
		return id
	}
	key := r.Key()
	id, ok := pl.reqByKey[key]
	if !ok {
		id = int32(len(pl.requests))
		pl.requests = append(pl.requests, r)
		pl.reqByKey[key] = id
	}
	if len(pl.reqByPtr) >= maxPointers {
		clear(pl.reqByPtr)
	}
	pl.reqByPtr[r] = id
	return id
}

const maxPointers = 1 << 18

// scratch returns a buffer of n amounts, valid until the next call with that n.
func (pl *Placer) scratch(n int) []int64 {
	b := pl.buffers[n]
	if b == nil {
		b = make([]int64, n)
		pl.buffers[n] = b
	}
	return b
}

// Begin starts the counter for a pass.
func (pl *Placer) Begin() { pl.Probes = 0 }

// Ask counts a question.
func (pl *Placer) Ask() { pl.Probes++ }

// forget forgets all requests and shapes.
func (pl *Placer) forget() {
	pl.requests = nil
	clear(pl.reqByPtr)
	clear(pl.reqByKey)
	clear(pl.shapes)
}

// LicensesUntil returns the time until which the licenses of sh stay free; now when they are not.
func (pl *Placer) LicensesUntil(sh *Shape) int64 {
	if sh.Lic == nil {
		return record.Forever
	}
	return pl.ix.Licenses.Until(pl.ix.Now, sh.Lic, pl.scratch(len(sh.Lic)))
}

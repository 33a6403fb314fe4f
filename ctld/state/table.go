package state

import (
	"iter"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Jobs is the table of job records.
type Jobs = table[pb.JobRecord]

// table is an immutable table of records by job id. Records lie in pages of pageSize consecutive ids; a change copies one page
// and the list of pages, so a commit that touches one of 100,000 jobs copies about five kilobytes.
type table[T any] struct {
	base  uint32 // number of the first page
	pages []*page[T]
	count int
}

// token stands for one transaction. It is not empty, so that each has an address of its own.
type token struct{ _ byte }

const pageSize = 256

type page[T any] struct {
	records [pageSize]*T
	count   int
	// owner is the token of the transaction that may write to this page. It is not the transaction itself: a published page would keep the
	// transaction alive, with its base view, and that view's pages theirs, back to the beginning.
	owner *token
}

// Get returns the record of a job, or nil.
func (t *table[T]) Get(id uint32) *T {
	p := t.page(id)
	if p == nil {
		return nil
	}
	return p.records[id%pageSize]
}

// Len returns the number of records.
func (t *table[T]) Len() int { return t.count }

// All iterates in ascending order of id.
func (t *table[T]) All() iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for _, p := range t.pages {
			if p == nil || p.count == 0 {
				continue
			}
			for _, j := range p.records {
				if j != nil && !yield(j) {
					return
				}
			}
		}
	}
}

// differ calls f for each id whose record differs between the tables. It skips pages that they share.
func (t *table[T]) differ(o *table[T], f func(id uint32)) {
	if t == o {
		return
	}
	from, to := min(t.base, o.base), max(t.base+uint32(len(t.pages)), o.base+uint32(len(o.pages)))
	for n := from; n < to; n++ {
		a, b := t.page(n*pageSize), o.page(n*pageSize)
		if a == b {
			continue
		}
		for id := n * pageSize; id-n*pageSize < pageSize; id++ {
			if t.Get(id) != o.Get(id) {
				f(id)
			}
		}
	}
}

func (t *table[T]) page(id uint32) *page[T] {
	n := id / pageSize
	if n < t.base || int(n-t.base) >= len(t.pages) {
		return nil
	}
	return t.pages[n-t.base]
}

// clone copies the list of pages, not the pages.
func (t *table[T]) clone() *table[T] {
	c := &table[T]{base: t.base, count: t.count, pages: make([]*page[T], len(t.pages), len(t.pages)+1)}
	copy(c.pages, t.pages)
	return c
}

// put stores j (or removes id when j is nil) on behalf of tx. The table must be tx's own clone.
func (t *table[T]) put(tx *Tx, id uint32, j *T) {
	p := t.writable(tx, id)
	slot := &p.records[id%pageSize]
	switch {
	case *slot == nil && j != nil:
		p.count++
		t.count++
	case *slot != nil && j == nil:
		p.count--
		t.count--
	}
	*slot = j
	if j == nil && p.count == 0 {
		t.trim()
	}
}

func (t *table[T]) writable(tx *Tx, id uint32) *page[T] {
	n := id / pageSize
	if len(t.pages) == 0 {
		t.base = n
	}
	for n < t.base {
		t.pages = append([]*page[T]{nil}, t.pages...)
		t.base--
	}
	for int(n-t.base) >= len(t.pages) {
		t.pages = append(t.pages, nil)
	}
	p := t.pages[n-t.base]
	switch {
	case p == nil:
		p = &page[T]{owner: tx.token}
	case p.owner != tx.token:
		c := *p
		c.owner = tx.token
		p = &c
	}
	t.pages[n-t.base] = p
	return p
}

// trim drops empty pages at both ends.
func (t *table[T]) trim() {
	for len(t.pages) > 0 && (t.pages[0] == nil || t.pages[0].count == 0) {
		t.pages = t.pages[1:]
		t.base++
	}
	for len(t.pages) > 0 {
		last := t.pages[len(t.pages)-1]
		if last != nil && last.count > 0 {
			break
		}
		t.pages = t.pages[:len(t.pages)-1]
	}
}

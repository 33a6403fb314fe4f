package journal

import (
	"bytes"
	"fmt"
	"io"
	"slices"
)

// inspection walks every page reachable from a meta page, reading with pread, and trusts nothing in the file. It checks bbolt's assumptions
// (kinds, bounds, order of keys, no page used twice), and the promises of the codec and the head.
type inspection struct {
	r     io.ReaderAt
	m     meta
	used  []uint64 // a bit per page
	spare [][]byte // buffers for reuse
	head  *head
	got   [lastBucket + 1]tally
	row   func(b Bucket, key, value []byte) error
	other []string // buckets that this program does not know
}

const (
	leafPage   = 2
	branchPage = 1
	maxDepth   = 64
)

// inspect checks the tree of m and returns the head. row, if not nil, is called for every row.
func inspect(r io.ReaderAt, m meta, row func(b Bucket, key, value []byte) error) (*head, error) {
	in := &inspection{r: r, m: m, used: make([]uint64, m.pages/64+1), row: row}
	in.used[0] = 3
	if m.freelist != noFreelist {
		return nil, fmt.Errorf("it names a free list, which this program never writes")
	}
	if err := in.tree(m.root, nil, nil, 0, in.bucket); err != nil {
		return nil, err
	}
	if in.head == nil {
		return nil, fmt.Errorf("it has no head record")
	}
	if len(in.other) > in.head.newer {
		return nil, fmt.Errorf("it has an unknown bucket %q", in.other[0])
	}
	for b := Bucket(1); b <= lastBucket; b++ {
		want, got := in.head.tally[b], in.got[b]
		if got.rows != want.rows {
			return nil, fmt.Errorf("cannot read %v: found %d rows, expected the %d that were committed", b, got.rows, want.rows)
		}
		if got != want {
			return nil, fmt.Errorf("cannot read %v: the rows are not those that were committed last", b)
		}
	}
	return in.head, nil
}

// entry is called for each element of a leaf; its slices are only valid during the call.
type entry func(bucket bool, key, value []byte) error

// bucket is the entry of the root: every element must be one of our buckets. The head tells whether an unknown one is from a newer version.
func (in *inspection) bucket(isBucket bool, name, value []byte) error {
	b, known := bucketNamed(name)
	if !isBucket {
		return fmt.Errorf("%q beside the buckets is none", name)
	}
	if !known && string(name) != headName {
		in.other = append(in.other, string(name))
		return nil
	}
	rows := func(nested bool, key, stored []byte) error { return in.value(b, nested, key, stored) }
	if len(value) < 16 {
		return fmt.Errorf("the header of bucket %s is cut short", name)
	}
	if root := native.Uint64(value); root != 0 {
		return in.tree(root, nil, nil, 0, rows)
	}
	return in.leaf(value[16:], nil, nil, rows)
}

func (in *inspection) value(b Bucket, nested bool, key, stored []byte) error {
	if nested {
		return fmt.Errorf("there is a bucket inside %v", b)
	}
	value, digest, err := unseal(b, key, stored)
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", describe(b, key), err)
	}
	if b == 0 {
		in.head, err = decodeHead(value)
		return err
	}
	in.got[b].replace(0, digest, false, true)
	if in.row != nil {
		return in.row(b, key, value)
	}
	return nil
}

// tree walks the pages below id, whose keys must lie in [low, high); nil is no bound.
func (in *inspection) tree(id uint64, low, high []byte, depth int, each entry) error {
	if depth > maxDepth {
		return fmt.Errorf("page %d: deeper than a tree of this size can be", id)
	}
	p, err := in.page(id)
	if err != nil {
		return err
	}
	defer func() { in.spare = append(in.spare, p) }()
	switch kind := native.Uint16(p[8:]); kind {
	case leafPage:
		if err := in.leaf(p, low, high, each); err != nil {
			return fmt.Errorf("page %d: %w", id, err)
		}
		return nil
	case branchPage:
		return in.branch(p, id, low, high, depth, each)
	default:
		return fmt.Errorf("page %d is of an unknown kind (%#x)", id, kind)
	}
}

func (in *inspection) branch(p []byte, id uint64, low, high []byte, depth int, each entry) error {
	n := int(native.Uint16(p[10:]))
	if n == 0 {
		return fmt.Errorf("page %d: a branch with no children", id)
	}
	keys, children := make([][]byte, n), make([]uint64, n)
	for i := range n {
		at := pageHeader + 16*i
		if at+16 > len(p) {
			return fmt.Errorf("page %d: cut short", id)
		}
		key, err := span(p, at, native.Uint32(p[at:]), native.Uint32(p[at+4:]))
		if err == nil {
			err = ordered(low, key, high, i == 0)
		}
		if err != nil {
			return fmt.Errorf("page %d: %w", id, err)
		}
		keys[i], children[i], low = key, native.Uint64(p[at+8:]), key
	}
	for i := range n {
		next := high
		if i+1 < n {
			next = keys[i+1]
		}
		if err := in.tree(children[i], keys[i], next, depth+1, each); err != nil {
			return err
		}
	}
	return nil
}

func (in *inspection) leaf(p, low, high []byte, each entry) error {
	if len(p) < pageHeader || native.Uint16(p[8:]) != leafPage {
		return fmt.Errorf("not a leaf")
	}
	for i := range int(native.Uint16(p[10:])) {
		at := pageHeader + 16*i
		if at+16 > len(p) {
			return fmt.Errorf("cut short")
		}
		flags, pos, klen, vlen := native.Uint32(p[at:]), native.Uint32(p[at+4:]), native.Uint32(p[at+8:]), native.Uint32(p[at+12:])
		both, err := span(p, at, pos, klen, vlen)
		if err != nil {
			return err
		}
		key, value := both[:klen], both[klen:]
		if err := ordered(low, key, high, i == 0); err != nil {
			return err
		}
		if flags > 1 {
			return fmt.Errorf("an element has unknown flags %#x", flags)
		}
		if err := each(flags == 1, key, value); err != nil {
			return err
		}
		low = key
	}
	return nil
}

// span returns the bytes of an element; its position counts from the element itself.
func span(p []byte, element int, pos uint32, lengths ...uint32) ([]byte, error) {
	start, end := uint64(element)+uint64(pos), uint64(element)+uint64(pos)
	for _, l := range lengths {
		end += uint64(l)
	}
	if end > uint64(len(p)) || lengths[0] == 0 {
		return nil, fmt.Errorf("an element lies outside of its page")
	}
	return p[start:end:end], nil
}

func ordered(low, key, high []byte, first bool) error {
	if low != nil {
		if c := bytes.Compare(low, key); c > 0 || (c == 0 && !first) {
			return fmt.Errorf("keys out of order")
		}
	}
	if high != nil && bytes.Compare(key, high) >= 0 {
		return fmt.Errorf("a key beyond its page's range")
	}
	return nil
}

// page reads a page with its overflow pages, once.
func (in *inspection) page(id uint64) ([]byte, error) {
	size := uint64(in.m.pageSize)
	if id < 2 || id >= in.m.pages {
		return nil, fmt.Errorf("a page is outside of the file (%d of %d)", id, in.m.pages)
	}
	p := in.buffer(size)
	if _, err := in.r.ReadAt(p, int64(id*size)); err != nil {
		return nil, fmt.Errorf("page %d: %w", id, err)
	}
	more := uint64(native.Uint32(p[12:]))
	if native.Uint64(p) != id || id+more >= in.m.pages {
		return nil, fmt.Errorf("page %d is not what it should be", id)
	}
	for i := id; i <= id+more; i++ {
		if in.used[i/64]&(1<<(i%64)) != 0 {
			return nil, fmt.Errorf("page %d is used twice", i)
		}
		in.used[i/64] |= 1 << (i % 64)
	}
	if more > 0 {
		p = slices.Grow(p, int(more*size))[:(1+more)*size]
		if _, err := in.r.ReadAt(p[size:], int64((id+1)*size)); err != nil {
			return nil, fmt.Errorf("page %d: %w", id, err)
		}
	}
	return p, nil
}

func (in *inspection) buffer(size uint64) []byte {
	n := len(in.spare)
	if n == 0 {
		return make([]byte, size, 4*size)
	}
	p := in.spare[n-1]
	in.spare = in.spare[:n-1]
	return p[:size]
}

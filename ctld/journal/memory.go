package journal

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
)

// Memory is a Store and an IDs without a disk, with the same rules, for tests and the simulator. It outlives the controller that uses it,
// as a disk does: Close only marks it closed, and Reopen makes it usable again.
type Memory struct {
	mu     sync.Mutex
	seq    uint64
	rows   [lastBucket + 1]map[string][]byte
	high   uint32
	floor  uint32
	closed bool

	generation uint64
	lost       []Span
}

var (
	_ Store = (*Memory)(nil)
	_ IDs   = (*Memory)(nil)
)

// NewMemory returns an empty store.
func NewMemory() *Memory {
	m := &Memory{generation: 1}
	for b := range m.rows {
		m.rows[b] = map[string][]byte{}
	}
	return m
}

// Commit implements Store.
func (m *Memory) Commit(b Batch) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	if err := b.check(m.seq); err != nil {
		return err
	}
	for _, r := range b.Rows {
		if r.Value == nil {
			delete(m.rows[r.Bucket], string(r.Key))
		} else {
			m.rows[r.Bucket][string(r.Key)] = cloneValue(r.Value)
		}
	}
	m.seq, m.floor = b.Seq, max(m.floor, highestID(b.Rows))
	m.high = max(m.high, m.floor)
	return nil
}

// Load implements Store.
func (m *Memory) Load(row func(b Bucket, key, value []byte) error) (uint64, error) {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return 0, ErrClosed
	}
	rows, seq := m.sorted(), m.seq
	m.mu.Unlock()
	for _, r := range rows {
		if err := row(r.Bucket, r.Key, r.Value); err != nil {
			return 0, err
		}
	}
	return seq, nil
}

// sorted returns copies of all rows by bucket and key.
func (m *Memory) sorted() []Row {
	var rows []Row
	for b, bucket := range m.rows {
		for k, v := range bucket {
			rows = append(rows, Row{Bucket(b), []byte(k), cloneValue(v)})
		}
	}
	slices.SortFunc(rows, compareRows)
	return rows
}

// Get implements Store.
func (m *Memory) Get(b Bucket, key []byte) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
		return nil, ErrClosed
	case !b.valid():
		return nil, fmt.Errorf("cannot read: there is no %v: %w", b, ErrBatch)
	}
	return cloneValue(m.rows[b][string(key)]), nil
}

// Backup implements Store: it writes the rows as text, one per line.
func (m *Memory) Backup(w io.Writer) (int64, error) {
	m.mu.Lock()
	rows, seq := m.sorted(), m.seq
	m.mu.Unlock()
	var out bytes.Buffer
	fmt.Fprintf(&out, "seq %d\n", seq)
	for _, r := range rows {
		fmt.Fprintf(&out, "%v %x %x\n", r.Bucket, r.Key, r.Value)
	}
	return out.WriteTo(w)
}

// Generation implements Store.
func (m *Memory) Generation() (number uint64, lost []Span) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.generation, m.lost
}

// Copy returns a backup: a store with the current contents of this one.
func (m *Memory) Copy() *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := NewMemory()
	for b, rows := range m.rows {
		maps.Copy(c.rows[b], rows) // values are never changed
	}
	c.seq, c.high, c.floor, c.generation, c.lost = m.seq, m.high, m.floor, m.generation, m.lost
	return c
}

// Restore replaces the store's contents with a backup, by the rules of a real restore. samePlace: the store's ids and generation survive;
// otherwise the backup is restored elsewhere, and they are lost.
func (m *Memory) Restore(from *Memory, samePlace bool) {
	c := from.Copy()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rows = c.rows
	if samePlace {
		m.floor = max(m.high, c.high)
		m.high = m.floor
	} else {
		m.high, m.floor = c.high, c.high
	}
	m.generation = max(m.generation, c.generation) + 1 // the real generation is the time, which grows everywhere
	m.seq = m.generation * commitsPerGeneration
	m.lost = withSpan(c.lost, Span{c.seq, m.seq})
}

// Size implements Store.
func (m *Memory) Size() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	var n int64
	for _, bucket := range m.rows {
		for k, v := range bucket {
			n += int64(len(k) + len(v))
		}
	}
	return n
}

// Room implements Store.
func (m *Memory) Room() int64 { return Ample }

// Close implements Store.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return nil
}

// Reopen makes a closed store usable again, with everything that was committed.
func (m *Memory) Reopen() *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = false
	return m
}

// IDFloor implements IDs.
func (m *Memory) IDFloor() uint32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.floor
}

// ReserveIDs implements IDs.
func (m *Memory) ReserveIDs(atLeast uint32) (uint32, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if atLeast > m.high {
		m.high = nextMark(atLeast)
	}
	return m.high, nil
}

// cloneValue copies a value; nil stays nil, empty stays empty.
func cloneValue(v []byte) []byte {
	if v == nil {
		return nil
	}
	return append([]byte{}, v...)
}

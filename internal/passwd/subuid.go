package passwd

import (
	"bytes"
	"os"
	"slices"
	"sync"
	"time"
)

// Subordinates maps subordinate uids to their owners, from a file in the format of subuid(5). A user may have tens of thousands of
// them and become any of them in a user namespace (newuidmap(1)), so per-user limits count them for the owner.
type Subordinates struct {
	path string
	now  func() time.Time

	mu      sync.Mutex
	checked time.Time
	seen    os.FileInfo
	ranges  []subRange // by first
}

// subRange is count uids starting with first, which belong to owner.
type subRange struct{ first, count, owner uint32 }

// recheck is how often the file is checked for changes.
const recheck = 10 * time.Second

// NewSubordinates reads path ("/etc/subuid") on first use, and again when it has changed.
func NewSubordinates(path string) *Subordinates { return &Subordinates{path: path, now: time.Now} }

// Owner returns the owner of a subordinate uid; any other uid is its own owner. The owner that the file names must be in
// /etc/passwd; otherwise the first uid of the range is returned. A directory is not queried, because Owner must not block.
func (s *Subordinates) Owner(uid uint32) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.now(); s.checked.IsZero() || now.Sub(s.checked) >= recheck || now.Before(s.checked) {
		s.checked = now
		s.read()
	}
	i, found := slices.BinarySearchFunc(s.ranges, uid, func(r subRange, uid uint32) int {
		switch {
		case r.first > uid:
			return 1
		case r.first == uid:
			return 0
		}
		return -1
	})
	if !found {
		i--
	}
	if i < 0 || uid-s.ranges[i].first >= s.ranges[i].count {
		return uid
	}
	return s.ranges[i].owner
}

// read reloads the file if it has changed.
func (s *Subordinates) read() {
	info, err := os.Stat(s.path)
	if err == nil && s.seen != nil && os.SameFile(info, s.seen) && info.ModTime().Equal(s.seen.ModTime()) && info.Size() == s.seen.Size() {
		return
	}
	s.ranges, s.seen = nil, info
	if err != nil {
		s.seen = nil
		return
	}
	data, err := os.ReadFile(s.path)
	if err != nil {
		s.seen = nil
		return
	}
	passwd, _ := os.ReadFile("/etc/passwd")
	s.ranges = subordinates(data, passwd)
}

// subordinates reads lines of "name-or-uid:first:count".
func subordinates(data, passwd []byte) (ranges []subRange) {
	byName, taken := map[string]uint32{}, map[uint32]bool{}
	for line := range bytes.Lines(passwd) {
		if a, ok := passwdLine(bytes.TrimSpace(line)); ok {
			byName[a.Name], taken[a.UID] = a.UID, true
		}
	}
	for line := range bytes.Lines(data) {
		f := bytes.Split(bytes.TrimSpace(line), []byte(":"))
		if len(f) != 3 {
			continue
		}
		first, ok1 := Decimal(f[1])
		count, ok2 := Decimal(f[2])
		if !ok1 || !ok2 || count == 0 || first == 0 {
			continue
		}
		owner, known := byName[string(f[0])]
		if uid, ok := Decimal(f[0]); !known && ok {
			owner, known = uid, true
		}
		if !known {
			owner = first
		}
		ranges = append(ranges, split(subRange{first, min(count, 1<<32-1-first), owner}, taken)...)
	}
	slices.SortStableFunc(ranges, func(a, b subRange) int {
		if a.first < b.first {
			return -1
		}
		if a.first > b.first {
			return 1
		}
		return 0
	})
	return ranges
}

// split excludes the uids that have an account of their own from a range: such a range is a mistake, which must not assign these
// users to another one.
func split(r subRange, taken map[uint32]bool) (parts []subRange) {
	var own []uint32
	for uid := range taken {
		if uid-r.first < r.count && uid >= r.first {
			own = append(own, uid)
		}
	}
	slices.Sort(own)
	for _, uid := range own {
		if n := uid - r.first; n > 0 {
			parts = append(parts, subRange{r.first, n, r.owner})
		}
		r.count -= uid - r.first + 1
		r.first = uid + 1
	}
	if r.count > 0 {
		parts = append(parts, r)
	}
	return parts
}

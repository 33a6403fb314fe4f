package passwd

import (
	"sync"
	"time"
)

// Absent remembers since when known users cannot be found. getent(1) also reports users as unknown while sssd or nslcd is stopped,
// so a user counts as gone only after a while. The zero value is ready to use.
type Absent struct {
	mu    sync.Mutex
	since map[uint32]time.Time // zero: the user was found
}

// Left is how long a user must be missing to count as gone.
const Left = time.Hour

// maxAbsent bounds the number of users remembered.
const maxAbsent = 10000

// Found records that a user has an account.
func (a *Absent) Found(uid uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.put(uid, time.Time{})
}

// Missing records that a user was not found, and reports whether the user counts as gone: because this has lasted for Left, or
// because the user was never found.
func (a *Absent) Missing(uid uint32) (gone bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	since, seen := a.since[uid]
	if !seen {
		return true
	}
	return a.lasts(uid, since)
}

// MissingOwner is Missing for a user who is known to have had an account, even if Found was never called.
func (a *Absent) MissingOwner(uid uint32) (gone bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lasts(uid, a.since[uid])
}

// Present reports whether the last record of a user is Found. It does no lookup.
func (a *Absent) Present(uid uint32) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	since, seen := a.since[uid]
	return seen && since.IsZero()
}

func (a *Absent) lasts(uid uint32, since time.Time) bool {
	if since.IsZero() {
		since = time.Now()
		a.put(uid, since)
	}
	return time.Since(since) >= Left
}

func (a *Absent) put(uid uint32, since time.Time) {
	if a.since == nil || len(a.since) >= maxAbsent {
		a.since = map[uint32]time.Time{}
	}
	a.since[uid] = since
}

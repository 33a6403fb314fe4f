package passwd

import (
	"sync"
	"time"
)

// Absent remembers since when users who had an account are not found. getent(1) says that somebody does not exist also while sssd or nslcd
// is stopped, so that only who stays away has left. The zero value is ready.
type Absent struct {
	mu    sync.Mutex
	since map[uint32]time.Time // zero: the user was found
}

// Left is how long users have to be missing before they count as gone.
const Left = time.Hour

// maxAbsent bounds what is remembered.
const maxAbsent = 10000

// Found notes that a user has an account.
func (a *Absent) Found(uid uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.put(uid, time.Time{})
}

// Missing notes that a user was not found, and reports whether the user counts as gone: because that has lasted for so long, or because
// the user was never found.
func (a *Absent) Missing(uid uint32) (gone bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	since, seen := a.since[uid]
	if !seen {
		return true
	}
	return a.lasts(uid, since)
}

// MissingOwner is Missing for a user who has had an account, whether or not that was seen.
func (a *Absent) MissingOwner(uid uint32) (gone bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lasts(uid, a.since[uid])
}

// Present reports whether a user was found, and not missed since. It asks nobody.
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

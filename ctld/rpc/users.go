package rpc

import (
	"cmp"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/sluice-hpc/sluice/conf/accounts"
)

// User is an account of this machine.
type User struct {
	Name   string
	GID    uint32
	Groups []uint32
}

// Users looks accounts up and remembers them for a minute.
type Users struct {
	mu     sync.Mutex
	names  map[uint32]cached[string]
	groups map[uint32]cached[string]
}

type cached[T any] struct {
	value T
	until time.Time
}

// userTTL is how long an answer is kept, and maxCached how many.
const (
	userTTL   = time.Minute
	maxCached = 10000
)

// NewUsers makes an empty cache.
func NewUsers() *Users {
	return &Users{names: map[uint32]cached[string]{}, groups: map[uint32]cached[string]{}}
}

// Name is the login name of a uid, or the number when there is none.
func (u *Users) Name(uid uint32) string {
	return u.remember(u.names, uid, func(id string) string {
		a, _ := accounts.User(id)
		return a.Name
	})
}

// Group is the name of a gid, or the number.
func (u *Users) Group(gid uint32) string {
	return u.remember(u.groups, gid, func(string) string { return accounts.GroupName(gid) })
}

// Find is the name of a user given by name or number.
func (u *Users) Find(who string) (string, bool) {
	a, ok := accounts.User(who)
	return a.Name, ok
}

// FindGroup is the name and number of a group given by either.
func (u *Users) FindGroup(which string) (string, uint32, bool) { return accounts.Group(which) }

func (u *Users) remember(m map[uint32]cached[string], id uint32, look func(string) string) string {
	u.mu.Lock()
	c, ok := m[id]
	u.mu.Unlock()
	if ok && time.Now().Before(c.until) {
		return c.value
	}
	text := strconv.FormatUint(uint64(id), 10)
	text = cmp.Or(look(text), text) // a directory service may take its time: nobody waits for it who asks for another
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(m) >= maxCached {
		clear(m)
	}
	m[id] = cached[string]{text, time.Now().Add(userTTL)}
	return text
}

// Lookup finds a user with the groups that login would give (for sbatch --uid, by operators only).
func (u *Users) Lookup(uid uint32) (User, error) {
	a, ok := accounts.User(strconv.FormatUint(uint64(uid), 10))
	if !ok || a.UID != uid {
		return User{}, fmt.Errorf("there is no user with uid %d on this machine", uid)
	}
	return User{Name: a.Name, GID: a.GID, Groups: accounts.Groups(a)}, nil
}

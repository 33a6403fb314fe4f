package rpc

import (
	"fmt"
	"os/user"
	"strconv"
	"sync"
	"time"
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
	return u.remember(u.names, uid, func(id string) (string, error) {
		a, err := user.LookupId(id)
		if err != nil {
			return "", err
		}
		return a.Username, nil
	})
}

// Group is the name of a gid, or the number.
func (u *Users) Group(gid uint32) string {
	return u.remember(u.groups, gid, func(id string) (string, error) {
		g, err := user.LookupGroupId(id)
		if err != nil {
			return "", err
		}
		return g.Name, nil
	})
}

// Find is the name of a user given by name or number.
func (u *Users) Find(who string) (string, bool) {
	a, err := user.Lookup(who)
	if err != nil {
		a, err = user.LookupId(who)
	}
	if err != nil {
		return "", false
	}
	return a.Username, true
}

// FindGroup is the name of a group given by name or number.
func (u *Users) FindGroup(which string) (string, bool) {
	g, err := user.LookupGroup(which)
	if err != nil {
		g, err = user.LookupGroupId(which)
	}
	if err != nil {
		return "", false
	}
	return g.Name, true
}

func (u *Users) remember(m map[uint32]cached[string], id uint32, look func(string) (string, error)) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	if c, ok := m[id]; ok && time.Now().Before(c.until) {
		return c.value
	}
	text := strconv.FormatUint(uint64(id), 10)
	if name, err := look(text); err == nil {
		text = name
	}
	if len(m) >= maxCached {
		clear(m)
	}
	m[id] = cached[string]{text, time.Now().Add(userTTL)}
	return text
}

// Lookup finds a user with the groups that login would give (for sbatch --uid, by operators only).
func (u *Users) Lookup(uid uint32) (User, error) {
	a, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return User{}, fmt.Errorf("there is no user with uid %d on this machine", uid)
	}
	gid, err := strconv.ParseUint(a.Gid, 10, 32)
	if err != nil {
		return User{}, fmt.Errorf("user %s has no usable group: %w", a.Username, err)
	}
	ids, err := a.GroupIds()
	if err != nil {
		return User{}, fmt.Errorf("cannot read the groups of %s: %w", a.Username, err)
	}
	r := User{Name: a.Username, GID: uint32(gid)}
	for _, s := range ids {
		if n, err := strconv.ParseUint(s, 10, 32); err == nil {
			r.Groups = append(r.Groups, uint32(n))
		}
	}
	return r, nil
}

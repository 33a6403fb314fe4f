package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/sluice-hpc/sluice/internal/passwd"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
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
	known  map[uint32]cached[bool]
	member map[uint32]cached[User]
	absent passwd.Absent
	find   func(who string) (a passwd.Account, known bool, err error)
}

type cached[T any] struct {
	value T
	until time.Time
}

// userTTL is the time for which an answer is kept, maxCached the number of answers.
const (
	userTTL   = time.Minute
	maxCached = 10000
	// strangerTTL is the time for which a missing account, or a failed look-up, is remembered: it is short so that a new account is usable
	// at once.
	strangerTTL = 5 * time.Second
)

// NewUsers makes an empty cache.
func NewUsers() *Users {
	return &Users{names: map[uint32]cached[string]{}, groups: map[uint32]cached[string]{},
		known: map[uint32]cached[bool]{}, member: map[uint32]cached[User]{}, find: passwd.Find}
}

// Name returns the login name of a uid, or the number when there is none.
func (u *Users) Name(uid uint32) string {
	return u.remember(u.names, uid, func(id string) string {
		a, _ := passwd.User(id)
		return a.Name
	})
}

// Exists reports whether a uid has an account. While a directory service does not answer, every uid has; a known account stays valid until
// the service has not known it for an hour (passwd.Absent).
func (u *Users) Exists(uid uint32) bool {
	u.mu.Lock()
	c, ok := u.known[uid]
	u.mu.Unlock()
	if ok && time.Now().Before(c.until) {
		return c.value
	}
	a, known, err := u.find(strconv.FormatUint(uint64(uid), 10))
	ttl := userTTL
	if !known {
		ttl = strangerTTL
	}
	switch known = known && a.UID == uid; {
	case known:
		u.absent.Found(uid)
	case err != nil:
		known = true
	default:
		known = !u.absent.Missing(uid)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.known) >= maxCached {
		clear(u.known)
	}
	u.known[uid] = cached[bool]{known, time.Now().Add(ttl)}
	return known
}

// stranger refuses users without an account: Slurm accepts their jobs, cannot make a credential and requeues them forever.
func (u *Users) stranger(p *Peer) *pb.Problem {
	if p.Operator || u.Exists(p.UID) {
		return nil
	}
	return pb.NewProblem(pb.CodeUserID, "uid %d has no account on the controller's machine", p.UID).WithHint(
		"users of jobs must be in its passwd(5) or its directory service")
}

// errNoAccount means that the directory has answered, and does not know a uid.
var errNoAccount = errors.New("no such account")

// Member returns a user with the groups that login would give, cached like the rest. While a directory service does not answer, known users
// stay known (passwd.Left).
func (u *Users) Member(ctx context.Context, uid uint32) (User, error) {
	u.mu.Lock()
	c, ok := u.member[uid]
	u.mu.Unlock()
	now := time.Now()
	if ok && now.Before(c.until) {
		return c.value, nil
	}
	a, known, err := u.find(strconv.FormatUint(uint64(uid), 10))
	known = known && a.UID == uid
	var groups []uint32
	if known {
		u.absent.Found(uid)
		groups, err = passwd.AllGroups(ctx, a)
	}
	switch {
	case known && err == nil:
		c = cached[User]{User{Name: a.Name, GID: a.GID, Groups: groups}, now.Add(userTTL)}
	case ok && now.Sub(c.until) < passwd.Left && (err != nil || !u.absent.Missing(uid)):
		return c.value, nil
	case err != nil:
		return User{}, err
	default:
		return User{}, errNoAccount
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.member) >= maxCached {
		clear(u.member)
	}
	u.member[uid] = c
	return c.value, nil
}

// Group returns the name of a gid, or the number.
func (u *Users) Group(gid uint32) string {
	return u.remember(u.groups, gid, func(string) string { return passwd.GroupName(gid) })
}

// Find returns the name of a user given by name or number.
func (u *Users) Find(who string) (string, bool) {
	a, ok := passwd.User(who)
	return a.Name, ok
}

// FindGroup returns the name and number of a group given by either.
func (u *Users) FindGroup(which string) (string, uint32, bool) { return passwd.Group(which) }

func (u *Users) remember(m map[uint32]cached[string], id uint32, look func(string) string) string {
	u.mu.Lock()
	c, ok := m[id]
	u.mu.Unlock()
	if ok && time.Now().Before(c.until) {
		return c.value
	}
	text := strconv.FormatUint(uint64(id), 10)
	text = cmp.Or(look(text), text) // without the lock: a directory service may be slow, and other look-ups must not wait for it
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
	a, ok := passwd.User(strconv.FormatUint(uint64(uid), 10))
	if !ok || a.UID != uid {
		return User{}, fmt.Errorf("there is no user with uid %d on this machine", uid)
	}
	groups, err := passwd.AllGroups(context.Background(), a)
	if err != nil {
		return User{}, err
	}
	return User{Name: a.Name, GID: a.GID, Groups: groups}, nil
}

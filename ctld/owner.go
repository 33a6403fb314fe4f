package ctld

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/internal/passwd"
)

// owners looks up the users of crontab jobs that start, because nobody submits them. If the directory does not answer, jobs start as
// before.
type owners struct {
	log    *slog.Logger
	now    func(ctx context.Context, uid uint32) (a passwd.Account, groups []uint32, known bool, problem string, err error)
	absent passwd.Absent

	mu    sync.Mutex
	known map[uint32]knownOwner
	mute  time.Time // no look-ups until then: the directory hangs
}

type knownOwner struct {
	owner *reactor.Owner
	until time.Time
}

// A pass waits at most ownersPatience for the directory, which gets lookups queries at a time; an answer, or a missing one, is valid for
// ownerTTL.
const (
	ownersPatience = 2 * time.Second
	lookups        = 4
	ownerTTL       = time.Minute
	absentTTL      = 5 * time.Second // for users who may have no jobs: after a release the job should be tried at once
)

func newOwners(log *slog.Logger) *owners {
	return &owners{log: log, now: passwd.Now, known: map[uint32]knownOwner{}}
}

// find returns the owners for a pass by uid; jobs of users without an entry start as before.
func (o *owners) find(ctx context.Context, uids []uint32) map[uint32]*reactor.Owner {
	limited, cancel := context.WithTimeout(ctx, ownersPatience)
	defer cancel()
	places := make(chan struct{}, lookups)
	var wg sync.WaitGroup
	for _, uid := range uids {
		if o.fresh(uid) {
			continue
		}
		places <- struct{}{}
		if limited.Err() != nil {
			break
		}
		wg.Go(func() {
			o.learn(uid, o.look(limited, uid))
			<-places
		})
	}
	wg.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	if limited.Err() != nil {
		o.mute = time.Now().Add(ownerTTL)
	}
	found := make(map[uint32]*reactor.Owner, len(uids))
	for _, uid := range uids {
		found[uid] = o.known[uid].owner
	}
	return found
}

// fresh reports whether a uid need not be looked up. It drops an outdated answer.
func (o *owners) fresh(uid uint32) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if k, ok := o.known[uid]; ok && now.Before(k.until) {
		return true
	}
	delete(o.known, uid)
	return now.Before(o.mute)
}

func (o *owners) learn(uid uint32, owner *reactor.Owner) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ttl := ownerTTL
	if owner != nil && (owner.Missing || owner.Problem != "") {
		ttl = absentTTL
	}
	o.known[uid] = knownOwner{owner, time.Now().Add(ttl)}
}

func (o *owners) look(ctx context.Context, uid uint32) *reactor.Owner {
	a, groups, known, problem, err := o.now(ctx, uid)
	switch {
	case err != nil:
		o.log.Warn("cannot look up the groups of a crontab's user: the job starts with the previous ones", "uid", uid, "err", err)
		return nil
	case !known && !o.absent.MissingOwner(uid):
		o.log.Warn("jobs of a crontab wait: their user was not found", "uid", uid)
		return &reactor.Owner{Missing: true}
	case !known:
		problem = fmt.Sprintf("uid %d no longer has an account", uid)
	default:
		o.absent.Found(uid)
	}
	return &reactor.Owner{GID: a.GID, Groups: groups, Problem: problem}
}

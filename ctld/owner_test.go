package ctld

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-hpc/sluice/internal/passwd"
)

// directory stands for getent(1).
type directory struct {
	mu      sync.Mutex
	asked   int
	stopped bool // sssd does not run: getent says that nobody exists
	hangs   bool
}

func (d *directory) now(ctx context.Context, uid uint32) (passwd.Account, []uint32, bool, string, error) {
	d.mu.Lock()
	d.asked++
	stopped, hangs := d.stopped, d.hangs
	d.mu.Unlock()
	switch {
	case hangs:
		<-ctx.Done()
		return passwd.Account{}, nil, false, "", ctx.Err()
	case stopped:
		return passwd.Account{}, nil, false, "", nil
	}
	return passwd.Account{UID: uid, GID: uid}, []uint32{uid, 5}, true, "", nil
}

func ownersWith(d *directory) *owners {
	o := newOwners(slog.New(slog.DiscardHandler))
	o.now = d.now
	return o
}

// While sssd restarts, jobs of crontabs wait; they are held only when their user stays away.
func TestOwnersOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &directory{}
		o := ownersWith(d)
		for range 3 {
			if w := o.find(t.Context(), []uint32{7})[7]; w == nil || w.GID != 7 || !slices.Equal(w.Groups, []uint32{7, 5}) || w.Missing {
				t.Fatalf("%+v", w)
			}
		}
		if d.asked != 1 {
			t.Errorf("asked %d times within a minute", d.asked)
		}
		time.Sleep(ownerTTL)
		d.stopped = true
		for _, uid := range []uint32{7, 8} { // 8: since the controller's start nobody has seen it
			if w := o.find(t.Context(), []uint32{uid})[uid]; w == nil || !w.Missing || w.Problem != "" {
				t.Errorf("uid %d while the service is stopped: %+v", uid, w)
			}
		}
		time.Sleep(passwd.Left)
		if w := o.find(t.Context(), []uint32{7})[7]; w == nil || w.Missing || w.Problem != "uid 7 no longer has an account" {
			t.Errorf("after an hour: %+v", w)
		}
		d.stopped = false
		time.Sleep(absentTTL) // the user has released the job
		if w := o.find(t.Context(), []uint32{7})[7]; w == nil || w.Missing || w.Problem != "" {
			t.Errorf("back again: %+v", w)
		}
	})
}

// A directory that hangs costs one pass two seconds, and then none for a minute.
func TestOwnersHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &directory{hangs: true}
		o := ownersWith(d)
		uids := make([]uint32, 200)
		for i := range uids {
			uids[i] = uint32(1000 + i)
		}
		for _, want := range []time.Duration{ownersPatience, 0} {
			begun := time.Now()
			for uid, w := range o.find(t.Context(), uids) {
				if w != nil {
					t.Errorf("uid %d: %+v", uid, w)
				}
			}
			if took := time.Since(begun); took != want {
				t.Errorf("took %v, want %v", took, want)
			}
		}
		if d.asked > lookups {
			t.Errorf("asked %d times", d.asked)
		}
		d.hangs = false
		time.Sleep(ownerTTL)
		if w := o.find(t.Context(), uids)[1100]; w == nil || w.GID != 1100 {
			t.Errorf("a minute later: %+v", w)
		}
		d.hangs = true
		time.Sleep(ownerTTL)
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("the end"))
		begun := time.Now()
		if o.find(ctx, uids); time.Since(begun) != 0 {
			t.Errorf("waited %v after the end", time.Since(begun))
		}
	})
}

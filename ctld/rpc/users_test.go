package rpc

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-hpc/sluice/internal/passwd"
)

// A user who had an account is not refused because sssd restarts.
func TestKnownUsersStayKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, stopped := NewUsers(), false
		u.find = func(string) (passwd.Account, bool, error) { return passwd.Account{UID: 7}, !stopped, nil }
		check := func(when string, uid uint32, want bool) {
			t.Helper()
			if got := u.Exists(uid); got != want {
				t.Errorf("%s: uid %d exists: %v", when, uid, got)
			}
		}
		check("at first", 7, true)
		check("at first", 8, false) // another's account
		stopped = true
		time.Sleep(userTTL)
		check("while it is stopped", 7, true)
		check("while it is stopped", 8, false)
		time.Sleep(passwd.Left - time.Second)
		check("nearly an hour later", 7, true)
		time.Sleep(strangerTTL)
		check("an hour later", 7, false)
		stopped = false
		time.Sleep(strangerTTL)
		check("back again", 7, true)
	})
}

// A uid known to have its own account does not belong to another user, whatever subuid(5) says.
func TestOwnAccountInForeignRange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := NewUsers()
		u.find = func(who string) (passwd.Account, bool, error) {
			return passwd.Account{UID: 100001}, who == "100001", nil
		}
		s := &Local{service: &Service{Users: u}, owner: func(uid uint32) uint32 { return 1000 }}
		for _, known := range []bool{false, true} {
			if known {
				u.Exists(100001)
				u.Exists(100002)
			}
			for uid, want := range map[uint32]uint32{100001: 1000, 100002: 1000, 1000: 1000} {
				if known && uid == 100001 {
					want = uid
				}
				if got := s.ownerOf(uid); got != want {
					t.Errorf("uid %d is %d's, want %d", uid, got, want)
				}
			}
		}
	})
}

package passwd

import (
	"bytes"
	"context"
	"os"
	"strconv"
	"time"
)

// Now looks up the current state of an account, for actions on behalf of a user who may have left meanwhile.
//
// known is false if there is no such account, which may also mean that the directory service is stopped (Absent). problem says why
// nothing may run for the user any more: the account has expired (shadow(5), if this process may read it). A locked or expired
// password is no problem: the user could still log in with a key or a ticket. An error means that the directory did not answer, so
// nothing is known.
func Now(ctx context.Context, uid uint32) (a Account, groups []uint32, known bool, problem string, err error) {
	a, known, err = find(ctx, strconv.FormatUint(uint64(uid), 10))
	if err != nil || !known || a.UID != uid {
		return a, nil, false, "", err
	}
	shadow, _ := os.ReadFile("/etc/shadow")
	if expired(shadow, a.Name, time.Now()) {
		return a, nil, true, "the account " + a.Name + " has expired", nil
	}
	groups, err = AllGroups(ctx, a)
	return a, groups, true, "", err
}

// expired reads the eighth field of shadow(5), the day since 1970 on which an account expires.
func expired(shadow []byte, name string, now time.Time) bool {
	for line := range bytes.Lines(shadow) {
		f := bytes.Split(bytes.TrimSpace(line), []byte(":"))
		if len(f) < 8 || string(f[0]) != name || len(f[7]) == 0 {
			continue
		}
		day, err := strconv.ParseInt(string(f[7]), 10, 64)
		return err == nil && day >= 0 && now.Unix()/86400 >= day
	}
	return false
}

package passwd

import (
	"testing"
	"testing/synctest"
	"time"
)

// Who was found is gone only after having been missing for an hour on end; who never was, at once.
func TestAbsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a Absent
		for range 2 {
			if !a.Missing(1) || a.Present(1) {
				t.Error("a user who was never found is not gone")
			}
		}
		a.Found(1)
		time.Sleep(48 * time.Hour) // nobody asks
		for range 2 {
			if !a.Present(1) || a.Missing(1) || a.Present(1) {
				t.Error("gone when first missed")
			}
			time.Sleep(Left - 1)
			if a.Missing(1) || a.MissingOwner(1) {
				t.Error("gone too early")
			}
			a.Found(1) // the directory is back
		}
		a.Missing(1)
		time.Sleep(Left)
		if !a.Missing(1) || !a.MissingOwner(1) {
			t.Error("not gone after an hour")
		}
		if a.MissingOwner(2) || a.Missing(2) {
			t.Error("an owner whom nobody has seen is gone at once")
		}
		time.Sleep(Left)
		if !a.MissingOwner(2) {
			t.Error("an owner whom nobody has seen is not gone after an hour")
		}
	})
}

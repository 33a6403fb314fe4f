package clock

import (
	"testing"
	"time"
)

func TestBoot(t *testing.T) {
	a := Boot()
	b := Boot()
	if a <= 0 || b < a {
		t.Errorf("up for %d ns, and then for %d", a, b)
	}
	if BootID() == "" {
		t.Errorf("boot %q", BootID())
	}
}

// TestBoth: the two readings are of one moment, within what any other reading before and after says.
func TestBoth(t *testing.T) {
	before, first := Boot(), time.Now()
	wall, boot := Both()
	last, after := time.Now(), Boot()
	if boot < before || boot > after {
		t.Errorf("%d is not between %d and %d", boot, before, after)
	}
	if wall.Before(first) || wall.After(last) {
		t.Errorf("%v is not between %v and %v", wall, first, last)
	}
}

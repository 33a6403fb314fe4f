package stepd

import (
	"testing"
	"time"
)

// TestLimit: when a step's time limit is reached, by CLOCK_BOOTTIME, whatever is done to the wall clock.
func TestLimit(t *testing.T) {
	const sec = int64(time.Second)
	at := func(boot, wall int64) moment { return moment{bootNS: boot * sec, wallNS: wall * sec} }
	for _, c := range []struct {
		what string
		do   func(l *limit)
		want int64 // seconds of CLOCK_BOOTTIME; 0 = none
	}{
		{"none", func(l *limit) { l.set(0, 0, at(100, 5000)) }, 0},
		{"an hour", func(l *limit) { l.set(3600, 8600*sec, at(100, 5000)) }, 3700},
		{"the controller's clock is two hours ahead", func(l *limit) { l.set(3600, 15800*sec, at(100, 5000)) }, 3700},
		{"its end passed long ago", func(l *limit) { l.set(3600, 1, at(100, 5000)) }, 3700},
		{"the clock is put back, and the order comes again", func(l *limit) {
			l.set(3600, 15800*sec, at(100, 12200))
			l.set(3600, 8600*sec, at(160, 5060))
		}, 3700},
		{"longer", func(l *limit) {
			l.set(3600, 8600*sec, at(100, 5000))
			l.set(7200, 12200*sec, at(1000, 5900))
		}, 7300},
		{"no limit any more", func(l *limit) {
			l.set(3600, 8600*sec, at(100, 5000))
			l.set(0, 0, at(1000, 5900))
		}, 0},
		{"suspended twice", func(l *limit) {
			l.set(3600, 8600*sec, at(100, 5000))
			l.pause(200 * sec)
			l.goOn(260 * sec)
			l.pause(300 * sec)
			l.goOn(1300 * sec)
			l.goOn(1400 * sec)
		}, 3700 + 60 + 1000},
		{"an older controller", func(l *limit) { l.set(0, 8600*sec, at(100, 5000)) }, 3700},
		{"of which the clock is set while the step runs", func(l *limit) {
			l.set(0, 8600*sec, at(100, 5000))
			l.set(0, 8600*sec, at(200, 12300)) // the same order, after the node's clock was set two hours ahead
		}, 3700},
		{"an older controller, extended", func(l *limit) {
			l.set(0, 8600*sec, at(100, 5000))
			l.set(0, 9600*sec, at(200, 5100))
		}, 4700},
		{"a newer controller takes over", func(l *limit) {
			l.set(0, 8600*sec, at(100, 5000))
			l.set(3600, 99999*sec, at(200, 12300))
		}, 3700},
		{"an older controller takes over", func(l *limit) {
			l.set(3600, 8600*sec, at(100, 5000))
			l.set(0, 8600*sec, at(200, 12300))
		}, 3700},
		{"an older controller, passed before this machine was booted", func(l *limit) { l.set(0, 4000*sec, at(100, 5000)) }, -900},
		{"an older controller, passed when it was", func(l *limit) { l.set(0, 4900*sec, at(100, 5000)) }, -1},
		{"an older controller, passed already", func(l *limit) { l.set(0, 1, at(100, 5000)) }, -1},
	} {
		l := limit{begunNS: 100 * sec}
		c.do(&l)
		switch {
		case c.want == 0 && !l.none():
			t.Errorf("%s: a limit at %d", c.what, l.at())
		case c.want == -1:
			if l.none() || l.at() > 100*sec {
				t.Errorf("%s: at %d, none %v", c.what, l.at(), l.none())
			}
		case c.want != 0 && (l.none() || l.at() != c.want*sec):
			t.Errorf("%s: at %v, want %d s", c.what, time.Duration(l.at()), c.want)
		}
	}
}

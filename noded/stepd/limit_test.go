package stepd

import (
	"testing"
	"time"
)

// TestLimit: when a step's time limit is reached, by CLOCK_BOOTTIME.
func TestLimit(t *testing.T) {
	const sec = int64(time.Second)
	limited := func(s uint32) func(*limit) { return func(l *limit) { l.lengthS = s } }
	for _, c := range []struct {
		what string
		do   func(l *limit)
		want int64 // seconds of CLOCK_BOOTTIME; 0 = none
	}{
		{"none", limited(0), 0},
		{"an hour", limited(3600), 3700},
		{"suspended twice", func(l *limit) {
			l.lengthS = 3600
			l.pause(200 * sec)
			l.goOn(260 * sec)
			l.pause(300 * sec)
			l.goOn(1300 * sec)
			l.goOn(1400 * sec)
		}, 3700 + 60 + 1000},
		{"suspended, then limited", func(l *limit) {
			l.pause(200 * sec)
			l.goOn(260 * sec)
			l.lengthS = 3600
		}, 3700 + 60},
	} {
		l := limit{begunNS: 100 * sec}
		c.do(&l)
		if l.none() != (c.want == 0) || c.want != 0 && l.at() != c.want*sec {
			t.Errorf("%s: at %v, none %v, want %d s", c.what, time.Duration(l.at()), l.none(), c.want)
		}
	}
}

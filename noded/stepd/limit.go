package stepd

import (
	"time"

	"github.com/sluice-hpc/sluice/internal/clock"
)

// limit is a step's time limit. It is measured by CLOCK_BOOTTIME from when the node daemon was told to start the step, without the time in
// which the step was suspended: neither this machine's wall clock nor the controller's can be set so that a step ends early or late, and a
// machine that sleeps does not stop the time. The zero value is no limit.
type limit struct {
	lengthS uint32 // as the controller says it
	begunNS int64  // CLOCK_BOOTTIME
	sleptNS int64  // suspended so far
	sinceNS int64  // suspended since; 0 = it is not
	// A controller or node daemon of an older version says when the limit is reached, by its wall clock. That is taken for so long from
	// when it is said first, and not looked at again.
	endNS int64 // as said
	atNS  int64 // CLOCK_BOOTTIME; 0 = none, negative: it was before this boot of the machine
}

// moment is one reading of both clocks.
type moment struct{ wallNS, bootNS int64 }

func moments() moment {
	wall, boot := clock.Both()
	return moment{wall.UnixNano(), boot}
}

// set takes over what an order says; nothing when it says what the one before said.
func (l *limit) set(lengthS uint32, endNS int64, m moment) {
	if lengthS == 0 && endNS == l.endNS {
		return
	}
	l.lengthS = lengthS
	if endNS == l.endNS {
		return
	}
	l.endNS, l.atNS = endNS, 0
	if endNS != 0 {
		if l.atNS = m.bootNS + endNS - m.wallNS; l.atNS == 0 {
			l.atNS = -1
		}
	}
}

// pause and goOn are a suspension and its end.
func (l *limit) pause(bootNS int64) { l.sinceNS = max(1, bootNS) }

func (l *limit) goOn(bootNS int64) {
	if l.sinceNS != 0 {
		l.sleptNS += bootNS - l.sinceNS
	}
	l.sinceNS = 0
}

// none: there is no limit. at is when it is reached, by CLOCK_BOOTTIME; of a suspended step that is not known.
func (l *limit) none() bool { return l.lengthS == 0 && l.atNS == 0 }

func (l *limit) at() int64 {
	if l.lengthS != 0 {
		return l.begunNS + int64(l.lengthS)*int64(time.Second) + l.sleptNS
	}
	return l.atNS
}

package stepd

import "time"

// limit is a step's time limit. It is measured by CLOCK_BOOTTIME from when the node daemon was told to start the step, without the time in
// which the step was suspended: neither this machine's wall clock nor the controller's can be set so that a step ends early or late, and a
// machine that sleeps does not stop the time. The zero value is no limit.
type limit struct {
	lengthS uint32 // as the controller says it; 0 = none
	begunNS int64  // CLOCK_BOOTTIME
	sleptNS int64  // suspended so far
	sinceNS int64  // suspended since; 0 = it is not
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
func (l *limit) none() bool { return l.lengthS == 0 }

func (l *limit) at() int64 { return l.begunNS + int64(l.lengthS)*int64(time.Second) + l.sleptNS }

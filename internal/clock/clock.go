// Package clock reads the two clocks of a machine. Anyone with the right to may set the wall clock. CLOCK_BOOTTIME
// counts from the boot, suspension included; nobody can set it, and its values mean nothing in another boot. So moments
// are of the wall clock, and durations are measured by the other.
package clock

import (
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Boot is the time since the machine was booted, in nanoseconds.
func Boot() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic("clock_gettime(CLOCK_BOOTTIME): " + err.Error()) // Linux has it since 2.6.39
	}
	return t.Nano()
}

// BootID names this boot of the machine, "" when the kernel does not say.
var BootID = sync.OnceValue(func() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
})

// Both reads both clocks at one moment. A process that was stopped between the two readings would believe that somebody had set the wall
// clock, so it reads again; on a machine that never has time the best of several readings counts.
func Both() (wall time.Time, bootNS int64) {
	const close, tries = int64(10 * time.Millisecond), 20
	best := int64(-1)
	for range tries {
		before := Boot()
		now := time.Now()
		took := Boot() - before
		if best < 0 || took < best {
			wall, bootNS, best = now, before+took/2, took
		}
		if best <= close {
			break
		}
	}
	return wall, bootNS
}

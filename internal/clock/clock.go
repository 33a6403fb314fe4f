// Package clock reads the two clocks of a machine. A privileged user may set the wall clock. CLOCK_BOOTTIME counts from the boot,
// including time suspended; nobody can set it, and its values are meaningless after the next boot. So Sluice takes moments from the
// wall clock and measures durations with CLOCK_BOOTTIME.
package clock

import (
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Boot returns the time since boot, in nanoseconds.
func Boot() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic("clock_gettime(CLOCK_BOOTTIME): " + err.Error()) // Linux has it since 2.6.39
	}
	return t.Nano()
}

// BootID identifies this boot of the machine, "" if the kernel does not say.
var BootID = sync.OnceValue(func() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
})

// Both reads both clocks at the same moment. A process that is stopped between the two readings would see a change of the wall
// clock, so it reads again until they are close; on a machine that is too busy it uses the best of several readings.
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

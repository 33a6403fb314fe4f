package inherit

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Nice gives this process a nice value (nice(2)), which what it starts inherits. The kernel has one for each thread, and new threads have
// that of the one that makes them.
func Nice(value int) error {
	if value < -20 || value > 19 {
		return fmt.Errorf("a nice value is from -20 to 19, not %d", value)
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range threads {
		tid, err := strconv.Atoi(t.Name())
		if err == nil {
			err = unix.Setpriority(unix.PRIO_PROCESS, tid, value)
		}
		if err != nil && err != unix.ESRCH {
			return fmt.Errorf("cannot have the nice value %d: %w", value, err)
		}
	}
	return nil
}

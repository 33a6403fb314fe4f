package inherit

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// nicePasses bounds the passes of Nice; every pass that finds new threads has changed the threads that created them.
const nicePasses = 100

// Nice sets the nice value (nice(2)) of this process, which its children inherit. The kernel keeps one per thread, and a new thread
// inherits that of its creator, so Nice continues until it finds no unchanged thread.
func Nice(value int) error {
	if value < -20 || value > 19 {
		return fmt.Errorf("a nice value is from -20 to 19, not %d", value)
	}
	return forThreads(threads, func(tid int) error {
		if err := unix.Setpriority(unix.PRIO_PROCESS, tid, value); err != nil && err != unix.ESRCH {
			return fmt.Errorf("cannot have the nice value %d: %w", value, err)
		}
		return nil
	})
}

// forThreads calls f for each thread returned by list, until list returns no new ones.
func forThreads(list func() ([]int, error), f func(tid int) error) error {
	done := map[int]bool{}
	for range nicePasses {
		tids, err := list()
		if err != nil {
			return err
		}
		before := len(done)
		for _, tid := range tids {
			if done[tid] {
				continue
			}
			if err := f(tid); err != nil {
				return err
			}
			done[tid] = true
		}
		if len(done) == before {
			return nil
		}
	}
	return nil
}

// threads returns the threads of this process.
func threads() ([]int, error) {
	list, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil, err
	}
	tids := make([]int, 0, len(list))
	for _, t := range list {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			return nil, err
		}
		tids = append(tids, tid)
	}
	return tids, nil
}

package cgroup

import (
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// nearby are the directories in which a root keeps groups, open as long as the process lives. A shim accesses two dozen cgroup
// files for each job, and from an open directory the kernel finds one in two thirds of the time for the whole path.
var nearby atomic.Pointer[[]place]

type place struct {
	prefix string // path prefix, with a slash at its end
	fd     int    // O_PATH
}

// reach opens the directories of a root that makes groups.
func (r *linuxRoot) reach() {
	for _, dir := range []string{r.track, r.memory, r.pids, r.cpuset, r.devices} {
		if dir == "" {
			continue
		}
		if fd, _ := near(dir + "/x"); fd >= 0 {
			continue
		}
		fd, err := open(dir, unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			continue // accessed by its path then
		}
		addPlace(place{dir + "/", fd})
	}
}

func addPlace(p place) {
	for {
		old := nearby.Load()
		var list []place
		if old != nil {
			list = append(list, *old...)
		}
		list = append(list, p)
		if nearby.CompareAndSwap(old, &list) {
			return
		}
	}
}

// near returns an open directory above a path, and the rest of the path; -1: none.
func near(path string) (fd int, rest string) {
	list := nearby.Load()
	if list == nil {
		return -1, ""
	}
	for _, p := range *list {
		if rest, ok := strings.CutPrefix(path, p.prefix); ok && rest != "" {
			return p.fd, rest
		}
	}
	return -1, ""
}

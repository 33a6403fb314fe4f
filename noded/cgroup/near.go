package cgroup

import (
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// nearby are the folders that a root keeps groups in, open for as long as the process lives: a shim touches two dozen files of cgroups for
// each job, and from such a folder the kernel finds one in two thirds of the time that the whole path takes it.
var nearby atomic.Pointer[[]place]

type place struct {
	prefix string // of paths: with a slash at its end
	fd     int    // O_PATH
}

// reach opens the folders of a root that makes groups.
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
			continue // by its path then
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

// near gives an open folder that a path lies below, and the rest of the path; -1: there is none.
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

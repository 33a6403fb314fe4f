package private

import (
	"bytes"

	"golang.org/x/sys/unix"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Room is the namespaces of a thread. Their contents stay open: they are checked after each step, and opening them costs more
// than the check.
type Room struct {
	disk  bool
	ipc   bool
	whole bool   // all that was wanted is there
	shm   int    // directory /dev/shm
	mq    int    // directory of the message queues of the IPC namespace; -1: not listable
	sysv  [3]int // the tables of System V memory, semaphores and message queues
}

func newRoom(p *pb.Privacy) *Room {
	return &Room{disk: !InMemory(p), ipc: p.GetIpc(), shm: -1, mq: -1, sysv: [3]int{-1, -1, -1}}
}

// Whole reports whether other steps can join these namespaces instead of their own.
func (r *Room) Whole() bool { return r.whole }

const folderFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC

// queues mounts the message queues of the IPC namespace where the node's are visible. If they are not, no program looks for them,
// but Empty must know.
func (r *Room) queues() {
	at := "/dev/mqueue"
	if !isMount(at) {
		at = Shm // which is about to be covered
	}
	if unix.Mount("mqueue", at, "mqueue", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "") == nil {
		r.mq = opened(at, folderFlags)
	}
	if at == Shm && r.mq >= 0 {
		_ = unix.Unmount(at, unix.MNT_DETACH)
	}
}

// look opens the rest inside the namespaces: the tables show the IPC namespace in which they were opened.
func (r *Room) look() {
	if r.disk {
		return // never empty
	}
	r.shm = opened(Shm, folderFlags)
	if !r.ipc {
		return
	}
	for i, kind := range []string{"shm", "sem", "msg"} {
		r.sysv[i] = opened("/proc/sysvipc/"+kind, unix.O_RDONLY|unix.O_CLOEXEC)
	}
}

// opened returns -1 on an error.
func opened(path string, flags int) int {
	fd, err := unix.Open(path, flags, 0)
	if err != nil {
		return -1
	}
	return fd
}

// Close is for the end of the thread, with which the namespaces end.
func (r *Room) Close() {
	if r == nil {
		return
	}
	for _, fd := range append(r.sysv[:], r.shm, r.mq) {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	r.shm, r.mq, r.sysv = -1, -1, [3]int{-1, -1, -1}
}

// Empty reports whether another step of the same user could not tell these namespaces from new ones.
func (r *Room) Empty() bool {
	if r.disk || !emptyFolder(r.shm) {
		return false
	}
	if !r.ipc {
		return true
	}
	for _, fd := range r.sysv {
		if !emptyTable(fd) {
			return false
		}
	}
	return emptyFolder(r.mq)
}

// emptyFolder is false also for an unreadable one.
func emptyFolder(fd int) bool {
	if _, err := unix.Seek(fd, 0, unix.SEEK_SET); err != nil {
		return false
	}
	var buf [1024]byte
	for {
		n, err := unix.ReadDirent(fd, buf[:])
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return false
		case n == 0:
			return true
		}
		if _, count, _ := unix.ParseDirent(buf[:n], 1, nil); count > 0 {
			return false
		}
	}
}

// emptyTable reports whether a table has only its heading.
func emptyTable(fd int) bool {
	var buf [1024]byte
	lines, at := 0, int64(0)
	for {
		n, err := unix.Pread(fd, buf[:], at)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return false
		case n == 0:
			return lines == 1
		}
		if lines += bytes.Count(buf[:n], []byte("\n")); lines > 1 {
			return false
		}
		at += int64(n)
	}
}

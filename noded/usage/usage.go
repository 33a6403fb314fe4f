// Package usage reads the resource use of processes from /proc: for sstat while a step runs, and for accounting.
//
// The figures are those of Slurm's jobacct_gather/linux: resident and virtual memory of all processes together, where shared
// pages count in each; bytes read and written as read(2) and write(2) count them; major page faults. The use of a process counts
// for its parent once it has been waited for, so the sum over living processes only misses those that nobody waited for.
package usage

import (
	"bytes"
	"os"
	"strconv"
	"strings"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"golang.org/x/sys/unix"
)

// Total is the combined use of processes.
type Total struct {
	RSSKiB, VMKiB         uint64
	UserUsec, SystemUsec  uint64
	ReadBytes, WriteBytes uint64
	MajorFaults           uint64
	PIDs                  []uint32 // the first maxPIDs
}

// maxPIDs bounds the list of a step's processes.
const maxPIDs = 100

// Table is a snapshot of this machine's processes, by parent.
type Table struct {
	proc     string
	children map[int][]process
	all      map[int]process
}

// process holds fields of /proc/<pid>/stat.
type process struct {
	pid, parent int
	total       Total
}

// ticks is the unit of times in /proc/<pid>/stat: USER_HZ, which is 100 on every Linux that Go runs on.
const ticks = 100

// Read reads one small file of each process.
func Read() *Table { return read("/proc") }

func read(proc string) *Table {
	t := &Table{proc: proc, children: map[int][]process{}, all: map[int]process{}}
	d, err := os.Open(proc)
	if err != nil {
		return t
	}
	defer func() { _ = d.Close() }()
	names, _ := d.Readdirnames(-1)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		b, err := os.ReadFile(proc + "/" + name + "/stat")
		if err != nil {
			continue // gone
		}
		if p, ok := parseStat(b); ok {
			p.pid = pid
			t.all[pid] = p
			t.children[p.parent] = append(t.children[p.parent], p)
		}
	}
	return t
}

// Parent returns the parent of a process, 0 if it is gone.
func (t *Table) Parent(pid int) int { return t.all[pid].parent }

// Below returns the use of all descendants of a process, without itself.
func (t *Table) Below(pid int) (sum Total) {
	for queue := []int{pid}; len(queue) > 0; queue = queue[1:] {
		for _, p := range t.children[queue[0]] {
			if p.pid == pid {
				continue // a cycle is impossible, but must not hang us
			}
			sum.add(p.total)
			if len(sum.PIDs) < maxPIDs {
				sum.PIDs = append(sum.PIDs, uint32(p.pid))
			}
			r, w := readIO(t.proc, p.pid)
			sum.ReadBytes, sum.WriteBytes = sum.ReadBytes+r, sum.WriteBytes+w
			queue = append(queue, p.pid)
		}
	}
	return sum
}

func (t *Total) add(o Total) {
	t.RSSKiB, t.VMKiB = t.RSSKiB+o.RSSKiB, t.VMKiB+o.VMKiB
	t.UserUsec, t.SystemUsec = t.UserUsec+o.UserUsec, t.SystemUsec+o.SystemUsec
	t.MajorFaults += o.MajorFaults
}

// parseStat parses proc_pid_stat(5): the name in parentheses may contain anything, so fields count from the last ')'.
func parseStat(b []byte) (p process, ok bool) {
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 22 {
		return p, false
	}
	n := func(field int) uint64 { // numbered as in the man page; the state is 3
		v, err := strconv.ParseUint(string(f[field-3]), 10, 64)
		if err != nil {
			return 0
		}
		return v
	}
	p.parent = int(n(4))
	p.total = Total{
		MajorFaults: n(12) + n(13), UserUsec: (n(14) + n(16)) * (1e6 / ticks), SystemUsec: (n(15) + n(17)) * (1e6 / ticks),
		VMKiB: n(23) >> 10, RSSKiB: n(24) * uint64(os.Getpagesize()) >> 10,
	}
	return p, true
}

// IO returns the bytes read and written by a process and by those that it has waited for; also for an unreaped zombie.
func IO(pid int) (readBytes, writeBytes uint64) { return readIO("/proc", pid) }

func readIO(proc string, pid int) (readBytes, writeBytes uint64) {
	fd, err := unix.Open(proc+"/"+strconv.Itoa(pid)+"/io", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, 0
	}
	var buf [512]byte // seven short lines, returned by one read
	got, err := unix.Read(fd, buf[:])
	unix.Close(fd)
	if err != nil {
		return 0, 0
	}
	for line := range strings.SplitSeq(string(buf[:got]), "\n") {
		key, value, _ := strings.Cut(line, ": ")
		n, _ := strconv.ParseUint(value, 10, 64)
		switch key {
		case "rchar":
			readBytes = n
		case "wchar":
			return readBytes, n
		}
	}
	return readBytes, 0
}

// Peak is the maximum over all samples.
type Peak struct{ RSSKiB, VMKiB uint64 }

// See adds a sample.
func (p *Peak) See(t Total) {
	p.RSSKiB, p.VMKiB = max(p.RSSKiB, t.RSSKiB), max(p.VMKiB, t.VMKiB)
}

// Message returns a step's usage report from a sample, with the maximum of all samples so far.
func (t Total) Message(key *pb.StepKey, p Peak) *pb.StepUsage {
	return &pb.StepUsage{Key: key, CpuUsecUser: t.UserUsec, CpuUsecSystem: t.SystemUsec, RssKib: t.RSSKiB, MaxRssKib: p.RSSKiB,
		VmKib:    t.VMKiB,
		MaxVmKib: p.VMKiB, ReadBytes: t.ReadBytes, WriteBytes: t.WriteBytes, PageFaults: t.MajorFaults, PidList: t.PIDs}
}

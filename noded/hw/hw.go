// Package hw detects the hardware of a node: processors and their topology, memory, disk, boot, load.
package hw

import "slices"

// Inventory is what stays the same until the next boot (or until processors go on- or offline).
type Inventory struct {
	Topology  Topology
	MemoryMiB uint64
	TmpMiB    uint64 // size of /tmp's file system
	BootID    string
	BootNS    int64 // nanoseconds since the epoch
	OS        string
	Arch      string
	Hostname  string
}

// Load is the current load of the machine.
type Load struct {
	CPU        float64 // one minute's load average
	FreeMemMiB uint64  // MemAvailable
}

// Prober reads them. Linux is the real one, Fake is for tests.
type Prober interface {
	Inventory() (Inventory, error)
	Load() (Load, error)
}

// CPU is one processor that the kernel schedules on.
type CPU struct {
	ID     int // the kernel's number
	Socket int // numbered from 0 in the order of their first processor
	Core   int // numbered from 0 over the whole machine
	Thread int // numbered from 0 within its core
}

// Topology lists the processors by socket, core and thread.
type Topology []CPU

// Counts returns the machine's shape in Slurm's terms: cores are per socket, threads per core. If sockets or cores differ, the
// figures are those of the smallest, so that sockets × cores × threads never exceeds the real number.
func (t Topology) Counts() (sockets, cores, threads int) {
	perSocket, perCore := map[int]map[int]bool{}, map[int]int{}
	for _, c := range t {
		if perSocket[c.Socket] == nil {
			perSocket[c.Socket] = map[int]bool{}
		}
		perSocket[c.Socket][c.Core] = true
		perCore[c.Core]++
	}
	for _, s := range perSocket {
		if cores == 0 || len(s) < cores {
			cores = len(s)
		}
	}
	for _, n := range perCore {
		if threads == 0 || n < threads {
			threads = n
		}
	}
	return len(perSocket), cores, threads
}

// build numbers sockets, cores and threads from the kernel's identities.
func build(raw []rawCPU) Topology {
	slices.SortFunc(raw, func(a, b rawCPU) int { return a.id - b.id })
	sockets, cores, threads := map[string]int{}, map[string]int{}, map[string]int{}
	number := func(m map[string]int, k string) int {
		if _, ok := m[k]; !ok {
			m[k] = len(m)
		}
		return m[k]
	}
	t := make(Topology, 0, len(raw))
	for _, r := range raw {
		core := r.socket + "/" + r.core
		t = append(t, CPU{ID: r.id, Socket: number(sockets, r.socket), Core: number(cores, core), Thread: threads[core]})
		threads[core]++
	}
	slices.SortFunc(t, func(a, b CPU) int {
		switch {
		case a.Socket != b.Socket:
			return a.Socket - b.Socket
		case a.Core != b.Core:
			return a.Core - b.Core
		}
		return a.Thread - b.Thread
	})
	return t
}

// rawCPU has the names of a processor's socket and core in sysfs or cpuinfo; only their equality matters.
type rawCPU struct {
	id           int
	socket, core string
}

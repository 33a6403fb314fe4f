package cgroup

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
)

// guests is the folder of an allocation's group with the processes that have been adopted into it: sessions of sshd. It is made when the
// first one comes, beside that of the script and those of the steps.
const guests = "extern"

// Adopt moves a process that runs into an allocation's group, under the limits of the allocation and behind its rules for devices. What is
// done to the script (Signal, KillOwn) is not done to it.
func (g *group) Adopt(pid int) error {
	if g.own == g.dir {
		return fmt.Errorf("cannot adopt a process into %s: it is no allocation's", g.dir)
	}
	g.adopted.Store(true)
	for _, dir := range append([]string{g.guests()}, g.v1...) {
		if dir == g.mem && g.root.layout != Unified {
			dir = filepath.Join(dir, guests) // who is killed in it for the lack of memory is not the script
		}
		if err := g.adoptInto(dir, pid); err != nil {
			return fmt.Errorf("cannot put process %d into cgroup %s: %w", pid, dir, err)
		}
	}
	return nil
}

func (g *group) adoptInto(dir string, pid int) error {
	if filepath.Base(dir) == guests {
		if err := mkdir(dir); err != nil && err != unix.EEXIST {
			return err
		}
	}
	return cgroups.WriteCgroupProc(dir, pid)
}

func (g *group) guests() string { return filepath.Join(g.dir, guests) }

// leaves are the folders with the allocation's processes that are in no step; of a step's group its own.
func (g *group) leaves() []string {
	if g.own != g.dir && g.adopted.Load() && exists(g.guests(), cgroups.CgroupProcesses) {
		return []string{g.own, g.guests()}
	}
	return []string{g.own}
}

// SignalAdopted sends a signal to what has been adopted. It need not wait for a thaw: the caller is about to end it.
func (g *group) SignalAdopted(sig int) error {
	if len(g.leaves()) == 1 {
		return nil
	}
	return signalIn(g.guests(), sig)
}

// removeGuests deletes the folders of what has been adopted, once it is gone.
func (g *group) removeGuests() {
	if g.own == g.dir || !g.adopted.Load() {
		return
	}
	_ = rmdir(g.guests())
	if g.mem != "" {
		_ = rmdir(filepath.Join(g.mem, guests))
	}
}

// Adopt cannot be done without cgroups: what belongs to a job is what its shim has started.
func (treeGroup) Adopt(int) error {
	return errors.New("cannot adopt a process: without cgroups only what a job has started belongs to it")
}

func (treeGroup) SignalAdopted(int) error { return nil }

// In tells whether a process, by its /proc/PID/cgroup, is in the group of an allocation of the node with this root.
func In(procCgroup, root, allocation string) bool {
	at := "/" + root + "/" + allocation
	for line := range strings.Lines(procCgroup) {
		if _, in, ok := strings.Cut(strings.TrimSpace(line), at); ok && (in == "" || in[0] == '/') {
			return true
		}
	}
	return false
}

package cgroup

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
)

// guests is the directory of an allocation's group for adopted processes: sshd sessions. It is created with the first one, beside
// those of the script and the steps.
const guests = "extern"

// Adopt moves a running process into an allocation's group, under its limits and device rules. Signal and KillOwn, which concern
// the script, do not affect it.
func (g *group) Adopt(pid int) error {
	if g.own == g.dir {
		return fmt.Errorf("cannot adopt a process into %s: it is no allocation's", g.dir)
	}
	g.adopted.Store(true)
	for _, dir := range append([]string{g.guests()}, g.v1...) {
		if dir == g.mem && g.root.layout != Unified {
			dir = filepath.Join(dir, guests) // so that an OOM kill in it is not the script's
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

// leaves returns the directories of the allocation's processes outside of steps; for a step's group, its own.
func (g *group) leaves() []string {
	if g.own != g.dir && g.adopted.Load() && exists(g.guests(), cgroups.CgroupProcesses) {
		return []string{g.own, g.guests()}
	}
	return []string{g.own}
}

// SignalAdopted sends a signal to the adopted processes. It need not wait for a thaw: the caller is about to end them.
func (g *group) SignalAdopted(sig int) error {
	if len(g.leaves()) == 1 {
		return nil
	}
	return signalIn(g.guests(), sig)
}

// removeGuests deletes the directory of adopted processes after they have ended.
func (g *group) removeGuests() {
	if g.own == g.dir || !g.adopted.Load() {
		return
	}
	_ = rmdir(g.guests())
	if g.mem != "" {
		_ = rmdir(filepath.Join(g.mem, guests))
	}
}

// Adopt needs cgroups: without them a job consists of the processes that its shim has started.
func (treeGroup) Adopt(int) error {
	return errors.New("cannot adopt a process: without cgroups only what a job has started belongs to it")
}

func (treeGroup) SignalAdopted(int) error { return nil }

// In reports whether a process, by its /proc/PID/cgroup, is in the group of an allocation of the node with this root.
func In(procCgroup, root, allocation string) bool {
	at := "/" + root + "/" + allocation
	for line := range strings.Lines(procCgroup) {
		if _, in, ok := strings.Cut(strings.TrimSpace(line), at); ok && (in == "" || in[0] == '/') {
			return true
		}
	}
	return false
}

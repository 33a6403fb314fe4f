package noded

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/noded/lifecycle"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestHealthStates: which nodes HealthCheckNodeState is for, as a real Slurm (22.05; NONDRAINED_IDLE: slurm.conf(5) of 23.02) has it.
func TestHealthStates(t *testing.T) {
	const cpus = 4
	nodes := []struct {
		name          string
		jobs          []uint32 // their CPUs
		down, drained bool
	}{{name: "idle"}, {name: "drained", drained: true}, {name: "mixed", jobs: []uint32{1, 2}}, {name: "full", jobs: []uint32{1, 3}},
		{name: "draining", jobs: []uint32{1}, drained: true}, {name: "down", down: true}, {name: "ending", down: true, jobs: []uint32{4}}}
	for states, want := range map[string]string{
		"":                       "idle drained mixed full draining down ending",
		"ANY":                    "idle drained mixed full draining down ending",
		"CYCLE":                  "idle drained mixed full draining down ending",
		"CYCLE,IDLE":             "idle drained",
		"IDLE":                   "idle drained",
		"NONDRAINED_IDLE":        "idle",
		"CYCLE,NONDRAINED_IDLE":  "idle",
		"MIXED,ALLOC":            "mixed full draining",
		"ALLOC":                  "full",
		"ALLOC,NONDRAINED_IDLE":  "idle full",
		"IDLE,ANY":               "idle drained mixed full draining down ending",
		"START_ONLY":             "",
		"DOWN,SOMETHING_UNKNOWN": "",
	} {
		var got []string
		for _, c := range nodes {
			var have []*nodepb.Known
			for i, of := range c.jobs {
				have = append(have, &nodepb.Known{Report: &pb.StepReport{Key: &pb.StepKey{JobId: uint32(i)}},
					Bundle: &pb.Bundle{Cgroup: "job", Cpus: of}})
			}
			n := &node{settings: &pb.NodeSettings{Node: &pb.NodeRecord{Cpus: cpus}}, steps: lifecycle.New(nil, quiet, "", "", nil, have),
				standing: &pb.NodeStanding{Down: c.down, Drained: c.drained}}
			if n.healthState(states) {
				got = append(got, c.name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("HealthCheckNodeState=%s is for %q, want %q", states, got, want)
		}
	}
}

// TestUntilCheck: all nodes are checked at the same time, those of CYCLE each at its own.
func TestUntilCheck(t *testing.T) {
	at := time.Unix(1000, 0) // sixteen minutes and forty seconds
	for _, c := range []struct{ every, offset, want time.Duration }{
		{60 * time.Second, 0, 20 * time.Second}, {60 * time.Second, 30 * time.Second, 50 * time.Second},
		{60 * time.Second, 10 * time.Second, 30 * time.Second}, {100 * time.Second, 0, 100 * time.Second},
	} {
		if got := untilCheck(at, c.every, c.offset); got != c.want {
			t.Errorf("every %v and %v later: in %v, want %v", c.every, c.offset, got, c.want)
		}
	}
}

// TestHealthCheckProgram: it runs before the node registers, then every HealthCheckInterval, with the environment of its own, and not
// while the node is in a state that it is not for.
func TestHealthCheckProgram(t *testing.T) {
	c := newController(t)
	dir := t.TempDir()
	ran, path := filepath.Join(dir, "ran"), filepath.Join(dir, "check")
	must(t, os.WriteFile(path, []byte("#!/bin/sh\nenv | sort | tr '\\n' ' ' >>"+ran+"; echo >>"+ran+"; exit 0\n"), 0o755))
	c.settings.HealthCheck, c.settings.HealthCheckS, c.settings.HealthStates = path, 1, "NONDRAINED_IDLE"
	d := newDaemon(t, c, newFakeSteps(t))
	d.o.HealthCheck, d.o.Conf, d.o.Socket = path, "/etc/slurm/slurm.conf", "/run/ctld.sock"
	runs := func() int { b, _ := os.ReadFile(ran); return strings.Count(string(b), "\n") }
	d.start()
	c.await("the hello", func() bool {
		if len(c.hellos) == 0 {
			return false
		}
		if runs() == 0 {
			t.Error("the node registered before it was checked")
		}
		return true
	})
	c.await("checks, which are for those of no standing too", func() bool { return runs() >= 3 })
	b, err := os.ReadFile(ran)
	must(t, err)
	for _, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		for _, want := range []string{"SLURMD_NODENAME=n1 ", "SLURM_CONF=/etc/slurm/slurm.conf ", "SLUICE_SOCKET=/run/ctld.sock ",
			"SLURM_CLUSTER_NAME=c1 "} {
			if !strings.Contains(line+" ", want) {
				t.Errorf("the environment has no %q: %s", want, line)
			}
		}
		if strings.Contains(line, "HOME=") {
			t.Errorf("the environment is the daemon's: %s", line)
		}
	}
	for _, s := range []*pb.NodeStanding{{Drained: true}, {Down: true}} {
		c.update(func() { c.standing = s })
		pauses(c, runs, fmt.Sprint(s))
		c.update(func() { c.standing = &pb.NodeStanding{} })
		was := runs()
		c.await("a check of a node that is idle again", func() bool { return runs() > was })
	}
	d.stop()
}

// TestHealthCheckOnceRegistered: the check that runs before the node registers cannot reach the controller, so it runs once more when the
// controller has spoken, whatever state the node is in; once for each start of the daemon.
func TestHealthCheckOnceRegistered(t *testing.T) {
	c := newController(t)
	dir := t.TempDir()
	ran, path := filepath.Join(dir, "ran"), filepath.Join(dir, "check")
	must(t, os.WriteFile(path, []byte("#!/bin/sh\necho >>"+ran+"\n"), 0o755))
	c.settings.HealthCheck, c.settings.HealthCheckS, c.settings.HealthStates = path, 1<<30, "START_ONLY" // the next is due in 2038
	c.standing = &pb.NodeStanding{Down: true}
	d := newDaemon(t, c, newFakeSteps(t))
	d.o.HealthCheck = path
	runs := func() int { b, _ := os.ReadFile(ran); return strings.Count(string(b), "\n") }
	d.start()
	c.hello(0)
	c.await("the check of a node that is registered", func() bool { return runs() >= 2 })
	was := c.heard()
	c.server.Stop()
	c.listen(c.addr)
	c.hello(was)
	pauses(c, runs, "after another hello of the same daemon")
	if got := runs(); got != 2 {
		t.Errorf("the check ran %d times, want 2", got)
	}
	d.stop()
	c.update(func() { c.settings.HealthCheck, d.o.HealthCheck = "", "" })
	was = c.heard()
	d.start()
	c.hello(was)
	pauses(c, runs, "without a program")
	if got := runs(); got != 2 {
		t.Errorf("without a program it ran %d times", got-2)
	}
	d.stop()
}

// pauses waits until no check has come for three heartbeats, which are as far apart as checks.
func pauses(c *controller, runs func() int, what string) {
	last, beat := -1, 0
	c.await("no checks: "+what, func() bool {
		if now := runs(); now != last {
			last, beat = now, c.beats
		}
		return c.beats >= beat+3
	})
}

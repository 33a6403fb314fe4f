package noded

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/noded/agent"
	"github.com/sluice-hpc/sluice/noded/hw"
)

// BenchmarkJobs runs whole jobs ("true") from the order to the recorded end, through the real link, shims and cgroups, in flight
// several at a time. It reports the CPU time of everything: this process (daemon and controller), shims and jobs.
func BenchmarkJobs(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("needs root: real cgroups")
	}
	for _, inFlight := range []int{1, 4, 16} {
		b.Run(fmt.Sprintf("inflight=%d", inFlight), func(b *testing.B) { benchmarkJobs(b, inFlight) })
	}
}

func benchmarkJobs(b *testing.B, inFlight int) {
	base, err := os.MkdirTemp("/var/tmp", "sluice-bench-")
	must(b, err)
	must(b, os.Chmod(base, 0o755))
	defer os.RemoveAll(base)
	c := newController(b)
	d := newDaemon(b, c, nil)
	d.o.Spool, d.o.Cluster, d.o.Prober = filepath.Join(base, "spool"), filepath.Base(base), hw.Linux{}
	d.start()
	run := func(id uint32) agent.Key {
		l := jobSpec(id, 1)
		l.Script, l.Env = []byte("#!/bin/sh\ntrue\n"), []string{"PATH=/usr/bin:/bin"}
		l.Spec.StdOut = "/dev/null"
		return c.submit(l)
	}
	c.end(run(1))
	before := cpuTime()
	began := time.Now()
	b.ResetTimer()
	var waiting []agent.Key
	for i := range b.N {
		waiting = append(waiting, run(uint32(i+2)))
		if len(waiting) == inFlight {
			if x := c.end(waiting[0]); x.Verdict != "exited" || x.WaitStatus != 0 {
				b.Fatal(x)
			}
			waiting = waiting[1:]
		}
	}
	for _, k := range waiting {
		c.end(k)
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "jobs/s")
	b.ReportMetric(float64((cpuTime()-before).Microseconds())/float64(b.N), "own-cpu-us/job")
	d.stop()
	c.server.Stop()
}

func cpuTime() time.Duration {
	var ru syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &ru)
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

package cgroup

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// BenchmarkBatchJob is what a batch job without steps does with its group, from Create to Remove; cpu-ns/op is CPU time of this process
// for it, which other load on the machine changes less than it does elapsed time.
func BenchmarkBatchJob(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("needs root: makes cgroups")
	}
	for _, plugin := range []string{PluginAuto, PluginV1} {
		r, err := Open(fmt.Sprintf("sluice-test/bench-%d", os.Getpid()), plugin)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(r.Tidy)
		b.Run(r.Layout().String(), func(b *testing.B) {
			before := cpuTime(b)
			for i := 0; b.Loop(); i++ {
				batchJob(b, r, fmt.Sprintf("job_%d.1", i))
			}
			b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

func batchJob(b *testing.B, r Root, name string) {
	g, err := r.Create(name, &pb.Limits{MemoryMib: 100})
	if err != nil {
		b.Fatal(err)
	}
	if empty, err := g.Empty(); err != nil || !empty {
		b.Fatal(empty, err)
	}
	g.Usage()
	if err := g.Remove(); err != nil {
		b.Fatal(err)
	}
}

// cpuTime is what this process has used of CPU, in nanoseconds.
func cpuTime(b *testing.B) int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		b.Fatal(err)
	}
	return t.Nano()
}

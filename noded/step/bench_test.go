package step_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/noded/cgroup"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// BenchmarkJobs runs a script that does nothing, from Launch to Forget, several at once. CPU per job counts this process and
// the shims, but not the jobs: run it beside BenchmarkBare, which is what the machine asks for at least.
//
//	go test -run=- -bench=. ./noded/step
func BenchmarkJobs(b *testing.B) {
	for _, c := range []struct {
		name    string
		limits  *pb.Limits
		privacy *pb.Privacy
	}{
		{"nolimits", nil, nil},
		{"pids", &pb.Limits{Pids: 1000}, nil},
		{"private", &pb.Limits{Pids: 1000}, &pb.Privacy{Dirs: []string{"/dev/shm"}, Ipc: true}},
		{"memory+pids+cpuset", &pb.Limits{Pids: 1000, MemoryMib: 100, CpusetCpus: "0-1"}, nil},
	} {
		for _, width := range []int{1, 4} {
			b.Run(fmt.Sprintf("%s/at-once=%d", c.name, width), func(b *testing.B) { benchJobs(b, c.limits, c.privacy, width) })
		}
	}
}

func benchJobs(b *testing.B, limits *pb.Limits, privacy *pb.Privacy, width int) {
	n := newNode(b)
	script := []byte("#!/bin/sh\ntrue\n")
	var wg sync.WaitGroup
	jobs := make(chan *pb.Bundle)
	var mu sync.Mutex
	waiters := map[string]chan struct{}{}
	n.onEnd = func(name string) {
		mu.Lock()
		defer mu.Unlock()
		close(waiters[name])
	}
	for range width {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for bd := range jobs {
				c := make(chan struct{})
				mu.Lock()
				waiters[stepName(bd)] = c
				mu.Unlock()
				if err := n.r.Launch(context.Background(), bd, script); err != nil {
					b.Error(err)
					return
				}
				<-c
				if err := n.r.Forget(bd.Key); err != nil {
					b.Error(err)
				}
			}
		}()
	}
	before, at := n.cpu(), time.Now()
	b.ResetTimer()
	for range b.N {
		bd := n.bundle()
		bd.Limits, bd.Privacy = limits, privacy
		bd.StdOut.Path = "/dev/null"
		jobs <- bd
	}
	close(jobs)
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/time.Since(at).Seconds(), "jobs/s")
	b.ReportMetric((n.cpu()-before).Seconds()*1e3/float64(b.N), "ms-CPU/job")
}

// cpu is the time used by this process and its living shims, without the jobs that they reaped: from schedstat, which counts
// nanoseconds where stat(5) samples ticks.
func (n *node) cpu() (d time.Duration) {
	shims, _ := os.ReadDir(n.spool + "/shims")
	pids := []string{"self"}
	for _, s := range shims {
		pids = append(pids, s.Name())
	}
	for _, pid := range pids {
		tasks, _ := filepath.Glob("/proc/" + pid + "/task/*/schedstat")
		for _, t := range tasks {
			var ns int64
			raw, _ := os.ReadFile(t)
			fmt.Sscan(string(raw), &ns)
			d += time.Duration(ns)
		}
	}
	return d
}

// BenchmarkBare is the machine's own limit: make a cgroup, fork /bin/sh into it, wait, remove it.
func BenchmarkBare(b *testing.B) {
	n := newNode(b)
	root, err := cgroup.Open(n.groups, n.plugin)
	must(b, err)
	must(b, os.WriteFile(n.work+"/s", []byte("#!/bin/sh\ntrue\n"), 0o755))
	at := time.Now()
	var ru0, ru1 syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &ru0)
	for i := range b.N {
		g, err := root.Create(fmt.Sprintf("job_%d", i), nil)
		must(b, err)
		cmd := exec.Command(n.work + "/s")
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: g.FD() >= 0, CgroupFD: g.FD()}
		must(b, cmd.Run())
		must(b, g.Remove())
	}
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &ru1)
	b.ReportMetric(float64(b.N)/time.Since(at).Seconds(), "jobs/s")
	b.ReportMetric(float64(ru1.Utime.Nano()+ru1.Stime.Nano()-ru0.Utime.Nano()-ru0.Stime.Nano())/1e6/float64(b.N), "ms-CPU/job")
}

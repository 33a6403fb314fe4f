package ctld

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/ttrpc"
	confload "github.com/sluice-hpc/sluice/conf"
	"github.com/sluice-hpc/sluice/ctld/journal"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// lastConf is the slurm.conf of the controller that startDaemon started last.
var lastConf string

// startDaemon runs a whole controller in this process, on a state folder of its own, and returns a connection to it.
func startDaemon(tb testing.TB, extra string) (dial func() pb.ControllerAPIClient, stop func()) {
	tb.Helper()
	dir := tb.TempDir()
	conf := filepath.Join(dir, "slurm.conf")
	text := fmt.Sprintf(
		"ClusterName=bench\nSlurmctldHost=localhost(127.0.0.1)\nSlurmUser=root\nStateSaveLocation=%s/state\nMaxJobCount=2000000\nDefMemPerCPU=100\n%s\n"+
			"NodeName=n[1-4] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[27821-27824] CPUs=64 RealMemory=64000\nPartitionName=debug "+
			"Nodes=ALL Default=YES State=UP\n", dir, extra)
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		tb.Fatal(err)
	}
	lastConf = conf
	ctx, cancel := context.WithCancel(context.Background())
	socket := filepath.Join(dir, "s")
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, Options{Conf: conf, Socket: socket, Listen: "127.0.0.1:0", Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	}()
	var conns []net.Conn
	dial = func() pb.ControllerAPIClient {
		for {
			c, err := net.Dial("unix", socket)
			if err == nil {
				conns = append(conns, c)
				return pb.NewControllerAPIClient(ttrpc.NewClient(c))
			}
			select {
			case err := <-done:
				tb.Fatal("the controller ended: ", err)
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
	return dial, func() {
		for _, c := range conns {
			_ = c.Close()
		}
		cancel()
		if err := <-done; err != nil {
			tb.Error(err)
		}
	}
}

func heldJob() *pb.SubmitRequest {
	var id [16]byte
	_, _ = rand.Read(id[:])
	return &pb.SubmitRequest{RequestId: hex.EncodeToString(id[:]), Script: []byte("#!/bin/sh\ntrue\n"),
		Env:  []string{"HOME=/root", "PATH=/usr/bin:/bin", "USER=root"},
		Spec: &pb.JobSpec{Name: "bench", WorkDir: "/tmp", Hold: true, NumTasks: 1, StdOut: "/dev/null"}}
}

// BenchmarkSubmit measures durable submissions over one connection with a number of calls in flight. Each one is on disk when it is
// answered.
func BenchmarkSubmit(b *testing.B) {
	for _, inFlight := range []int{1, 64} {
		b.Run(fmt.Sprintf("inflight=%d", inFlight), func(b *testing.B) {
			dial, stop := startDaemon(b, "")
			defer stop()
			client := dial()
			var left atomic.Int64
			left.Store(int64(b.N))
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			for range inFlight {
				wg.Add(1)
				go func() {
					defer wg.Done()
					for left.Add(-1) >= 0 {
						if _, err := client.Submit(context.Background(), heldJob()); err != nil {
							b.Error(err)
							return
						}
					}
				}()
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "submissions/s")
		})
	}
}

// BenchmarkQueue measures a controller with many pending jobs: its memory, and the time to load them after a restart.
func BenchmarkQueue(b *testing.B) {
	for _, jobs := range []int{10_000, 100_000} {
		b.Run(fmt.Sprintf("jobs=%d", jobs), func(b *testing.B) {
			for range b.N {
				queue(b, jobs)
			}
		})
	}
}

func queue(b *testing.B, jobs int) {
	dial, stop := startDaemon(b, "")
	client := dial()
	var left atomic.Int64
	left.Store(int64(jobs))
	var wg sync.WaitGroup
	for range 64 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for left.Add(-1) >= 0 {
				if _, err := client.Submit(context.Background(), heldJob()); err != nil {
					b.Error(err)
					return
				}
			}
		}()
	}
	wg.Wait()
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(m.HeapAlloc)/(1<<20), "MiB-heap")
	b.ReportMetric(float64(m.Sys-m.HeapReleased)/(1<<20), "MiB-from-system")
	conf := lastConf
	stop()
	c, err := confload.Load(conf, confload.Options{})
	if err != nil {
		b.Fatal(err)
	}
	cfg := stateConfig(c, 0)
	begun := time.Now()
	store, err := journal.Open(c.StateSaveLocation, journal.Options{})
	if err != nil {
		b.Fatal(err)
	}
	v, err := state.Load(cfg, store, store.ClusterID(), 1)
	if err != nil || v.Jobs.Len() != jobs {
		b.Fatal(err, v.Jobs.Len())
	}
	b.ReportMetric(float64(time.Since(begun).Milliseconds()), "ms-restart")
	if err := store.Close(); err != nil {
		b.Fatal(err)
	}
}

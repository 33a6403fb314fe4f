// load N SLEEP… submits N jobs over one connection, as fast as the controller takes them: each a processor's worth of one of a hundred
// shapes, with a script that sleeps for one of the times given (seconds), in turn. -partition and -cpus say where and how large. It is what
// .ci/scale fills a queue with: a hundred thousand sbatch processes would take half an hour.
//
// load -probe TIME says how long a user's calls take: for so long he submits a held job, looks at it and cancels it, 20 ms apart
// (.ci/neighbour).
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/msg"
)

func main() {
	partition := flag.String("partition", "", "partition of the jobs")
	cpus := flag.Int("cpus", 1, "tasks of each job")
	look := flag.Duration("probe", 0, "only look how long calls take, for this long")
	flag.Parse()
	n, err := strconv.Atoi(flag.Arg(0))
	if *look == 0 && (err != nil || flag.NArg() < 2) {
		fmt.Fprintln(os.Stderr, "load: want N SLEEP…")
		os.Exit(2)
	}
	socket, err := client.SocketPath(os.Getenv)
	must(err)
	c, err := client.Dial(context.Background(), socket)
	must(err)
	defer c.Close()
	if *look > 0 {
		probe(c, *look)
		return
	}
	const inFlight = 32
	var next atomic.Int64
	var wg sync.WaitGroup
	for range inFlight {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				_, err := c.SubmitJob(context.Background(), job(i, flag.Arg(1+int(i)%(flag.NArg()-1)), *partition, *cpus))
				must(err)
			}
		})
	}
	wg.Wait()
}

// job is the i-th submission.
func job(i int64, sleep, partition string, cpus int) *msg.SubmitRequest {
	return &msg.SubmitRequest{RequestId: fmt.Sprintf("load-%d-%d", os.Getpid(), i),
		Script: fmt.Appendf(nil, "#!/bin/sh\nsleep %s\n", sleep), Env: []string{"PATH=/usr/bin:/bin"},
		Spec: &msg.JobSpec{Name: "load", WorkDir: "/", StdOut: "/dev/null", Command: "load.sh", Umask: 0o22,
			Partition: partition, NumTasks: uint32(cpus), MinNodes: 1, MaxNodes: 1, MemPerNodeMib: uint64(100 + i%10),
			TimeLimitS: uint32(600 + i/10%10*60)}}
}

// probe prints for each kind of call the median, the 99th percentile and the longest time, in milliseconds.
func probe(c *client.Client, long time.Duration) {
	ctx := context.Background()
	took := map[string][]time.Duration{}
	timed := func(name string, call func()) {
		began := time.Now()
		call()
		took[name] = append(took[name], time.Since(began))
		time.Sleep(20 * time.Millisecond)
	}
	end := time.Now().Add(long)
	for i := int64(1); time.Now().Before(end); i++ {
		j := job(i, "1", "", 1)
		j.Spec.Hold = true
		var id string
		timed("submit", func() {
			reply, err := c.SubmitJob(ctx, j)
			must(err)
			id = fmt.Sprint(reply.JobId)
		})
		timed("show", func() {
			stream, err := c.Jobs(ctx, &msg.JobsRequest{Ids: []string{id}})
			for err == nil {
				_, err = stream.Recv()
			}
			if err != io.EOF {
				must(err)
			}
		})
		timed("cancel", func() {
			_, err := c.CancelJobs(ctx, &msg.CancelJobsRequest{Ids: []string{id}})
			must(err)
		})
	}
	for _, name := range []string{"submit", "show", "cancel"} {
		v := took[name]
		slices.Sort(v)
		ms := func(part int) float64 { return float64(v[(len(v)-1)*part/100].Microseconds()) / 1000 }
		fmt.Printf("%-10s %6d calls  median %7.2f  99 of 100 %7.2f  longest %7.2f ms\n", name, len(v), ms(50), ms(99), ms(100))
	}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", client.Text(err))
		os.Exit(1)
	}
}

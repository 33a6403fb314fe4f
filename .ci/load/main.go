// load N SLEEP… submits N jobs over one connection, as fast as the controller takes them: each a processor's worth of one of a hundred
// shapes, with a script that sleeps for one of the times given (seconds), in turn. -partition and -cpus say where and how large. It is what
// .ci/scale fills a queue with: a hundred thousand sbatch processes would take half an hour.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/msg"
)

func main() {
	partition := flag.String("partition", "", "partition of the jobs")
	cpus := flag.Int("cpus", 1, "tasks of each job")
	flag.Parse()
	n, err := strconv.Atoi(flag.Arg(0))
	if err != nil || flag.NArg() < 2 {
		fmt.Fprintln(os.Stderr, "load: want N SLEEP…")
		os.Exit(2)
	}
	c, err := client.Dial(context.Background(), os.Getenv("SLUICE_SOCKET"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
	defer c.Close()
	const inFlight = 32
	var next atomic.Int64
	var wg sync.WaitGroup
	for range inFlight {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				script := fmt.Sprintf("#!/bin/sh\nsleep %s\n", flag.Arg(1+int(i)%(flag.NArg()-1)))
				_, err := c.SubmitJob(context.Background(), &msg.SubmitRequest{RequestId: fmt.Sprintf("load-%d-%d", os.Getpid(), i),
					Script: []byte(script), Env: []string{"PATH=/usr/bin:/bin"},
					Spec: &msg.JobSpec{Name: "load", WorkDir: "/", StdOut: "/dev/null", Command: "load.sh", Umask: 0o22,
						Partition: *partition, NumTasks: uint32(*cpus), MinNodes: 1, MaxNodes: 1, MemPerNodeMib: uint64(100 + i%10),
						TimeLimitS: uint32(600 + i/10%10*60)}})
				if err != nil {
					fmt.Fprintln(os.Stderr, "load:", client.Text(err))
					os.Exit(1)
				}
			}
		})
	}
	wg.Wait()
}

package admin

import (
	"context"
	"flag"
	"fmt"
	"os/signal"
	"strings"
	"syscall"

	"github.com/sluice-hpc/sluice/client/cluster"
)

func down() *Verb {
	return &Verb{
		Name:  "down",
		Usage: "stop a cluster that `sluice up` started",
		Description: `Cancels its jobs, waits until they have ended, stops its daemons, and leaves no process, cgroup or mount behind.
Its state is kept, unless --wipe is given; ` + "`sluice up`" + ` continues with it.`,
		Flags: func(f *flag.FlagSet) {
			dirFlag(f)
			f.Bool("wipe", false, "delete the state, logs and configuration that `sluice up` created")
			f.Bool("now", false, "kill jobs at once instead of giving them KillWait seconds to exit")
		},
		Run: runDown,
	}
}

func runDown(c *Call) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	p := newProgress(c.Stderr)
	s, err := cluster.Down(ctx, cluster.DownOptions{Dir: c.String("dir"), Wipe: c.Bool("wipe"), Now: c.Bool("now"), Progress: p.say})
	p.end()
	if err != nil {
		return err
	}
	fmt.Fprintln(c.Stdout, stopped(s))
	return nil
}

func stopped(s *cluster.Stopped) string {
	var b strings.Builder
	switch {
	case s.Cluster == "" && s.Daemons == 0 && !s.Wiped:
		return fmt.Sprintf("there is no cluster in %s", s.Dir)
	case s.Daemons == 0:
		fmt.Fprintf(&b, "cluster %s was not running", s.Cluster)
	default:
		fmt.Fprintf(&b, "cluster %s is stopped: %d daemon%s", s.Cluster, s.Daemons, plural(s.Daemons))
	}
	switch {
	case s.Running > 0 && s.Pending > 0:
		fmt.Fprintf(&b, ", %d running and %d pending jobs cancelled", s.Running, s.Pending)
	case s.Running > 0:
		fmt.Fprintf(&b, ", %d running job%s cancelled", s.Running, plural(s.Running))
	case s.Pending > 0:
		fmt.Fprintf(&b, ", %d pending job%s cancelled", s.Pending, plural(s.Pending))
	}
	if s.Killed > 0 {
		fmt.Fprintf(&b, ", %d process%s of jobs killed", s.Killed, map[bool]string{true: "", false: "es"}[s.Killed == 1])
	}
	b.WriteString("; nothing is left running")
	if s.Wiped {
		fmt.Fprintf(&b, ", and %s is wiped", s.Dir)
	}
	if len(s.Left) > 0 {
		fmt.Fprintf(&b, "\nleft, because `sluice up` did not make it: %s", strings.Join(s.Left, ", "))
	}
	return b.String()
}

package sandbox

import (
	"context"
	"fmt"
	"os/signal"
	"strings"
	"syscall"

	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/opt"
)

// DownVerb is `sluice down`.
func DownVerb() *command.Verb {
	return &command.Verb{
		Name: "down", Line: "stop a cluster that `sluice up` started",
		Page: command.Page{
			About: `Stops a cluster that "sluice up" started: cancels its jobs, waits until they have ended, stops its daemons, and leaves no
process, cgroup or mount behind. Its state is kept, unless --wipe is given; "sluice up" continues with it.`,
			Options: []command.Option{
				dirOption(),
				{Name: opt.Name{Long: "wipe"}, Help: "delete the state, logs and configuration that `sluice up` created"},
				{Name: opt.Name{Long: "now"}, Help: "kill jobs at once instead of giving them KillWait seconds to exit"},
			},
		},
		Run: runDown,
	}
}

func runDown(c *command.Call) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	p := newProgress(c.Stderr)
	s, err := Down(ctx, DownOptions{Dir: c.Text("dir"), Wipe: c.Given("wipe"), Now: c.Given("now"), Progress: p.say})
	p.end()
	if err != nil {
		return err
	}
	fmt.Fprintln(c.Stdout, stopped(s))
	return nil
}

func stopped(s *Stopped) string {
	var b strings.Builder
	switch {
	case s.Cluster == "" && s.Daemons == 0 && !s.Wiped:
		return fmt.Sprintf("there is no cluster in %s", s.Dir)
	case s.Daemons == 0:
		fmt.Fprintf(&b, "cluster %s was not running", s.Cluster)
	default:
		fmt.Fprintf(&b, "cluster %s is stopped: %s", s.Cluster, command.Plural(s.Daemons, "daemon"))
	}
	switch {
	case s.Running > 0 && s.Pending > 0:
		fmt.Fprintf(&b, ", %d running and %d pending jobs cancelled", s.Running, s.Pending)
	case s.Running > 0:
		fmt.Fprintf(&b, ", %s cancelled", command.Plural(s.Running, "running job"))
	case s.Pending > 0:
		fmt.Fprintf(&b, ", %s cancelled", command.Plural(s.Pending, "pending job"))
	}
	if s.Killed > 0 {
		fmt.Fprintf(&b, ", %d process%s of jobs killed", s.Killed, map[bool]string{true: "", false: "es"}[s.Killed == 1])
	}
	b.WriteString("; nothing is left running")
	if s.Wiped {
		fmt.Fprintf(&b, ", and %s is wiped", s.Dir)
	}
	if len(s.Left) > 0 {
		fmt.Fprintf(&b, "\nkept, because `sluice up` did not create it: %s", strings.Join(s.Left, ", "))
	}
	return b.String()
}

package hosts

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
)

const nodeUsage = `usage: sluice node COMMAND [options]

The hosts of the cluster. For root and SlurmUser.

  list           show them, and what of each differs from the controller
  revoke NAME    shut a host out

Example:
  sluice node list --problems
`

const listNodesUsage = `usage: sluice node list [options]

Shows the hosts of the cluster, a line each: the controller, the nodes, and login hosts.

STATE is that of a node. VERSION is the release of the host's daemon. CONF says whether the host has the controller's configuration:
current, behind (one that it was given is not in force), or different (it has files of its own, and they say something else). CLOCK
is by how much its clock is ahead of the controller's, when that is more than five seconds. CERTIFICATE is when the one that it uses
ends. SINCE is since when it has been connected. A dash: not known; login hosts do not say what configuration they have.

Below, for each host with which something is wrong, what that is: another release, configuration or clock, no connection, a
certificate that should have been renewed, a daemon that was refused.

Options:
  --problems       only hosts with which something is wrong, and exit status 1 if there are any
  -h, --noheader   without headings
  --help           this text

Example, for cron, which mails what is printed:
  sluice node list --problems -h
`

const revokeHostUsage = `usage: sluice node revoke NAME

Shuts the host NAME out, at once and for good: no certificate that it has been given counts any more, its connections are closed,
and tokens for it are revoked. If it is a node, it is DOWN, and its jobs are requeued or end as on a node that fails; what still
runs there is killed when it has joined again. For root and SlurmUser, on the controller.

To let it in again: sluice token create --node NAME

Example:
  sluice node revoke n7
`

// Node runs `sluice node`.
func Node(env *command.Env, args []string) int {
	return main(env, "node", nodeUsage, map[string]verb{
		"list": {usage: listNodesUsage, run: listHosts, flags: func(f *flag.FlagSet, o *options) {
			noHeader(f, o)
			f.BoolVar(&o.wrong, "problems", false, "")
		}},
		"revoke": {usage: revokeHostUsage, run: revokeHost, args: 1},
	}, args)
}

// errProblems ends a list of hosts with which something is wrong.
var errProblems = errors.New("something is wrong with a host")

func listHosts(ctx context.Context, env *command.Env, c *client.Client, o *options) error {
	r, err := c.Hosts(ctx, &msg.HostsRequest{})
	if err != nil {
		return err
	}
	rows := [][]string{{"NAME", "ROLE", "STATE", "VERSION", "CONF", "CLOCK", "CERTIFICATE", "ADDRESS", "SINCE"}}
	var wrong []string
	for _, h := range r.Hosts {
		for _, p := range h.Problems {
			wrong = append(wrong, format.Escape(h.Name+": "+p))
		}
		if o.wrong && len(h.Problems) == 0 {
			continue
		}
		state, clock := "-", "-"
		if h.Role == "compute" {
			state = format.NodeStateComplete(&msg.NodeRecord{State: h.State, StateFlags: h.StateFlags})
		}
		if h.ClockOffNs != 0 {
			clock = fmt.Sprintf("%+ds", h.ClockOffNs/int64(time.Second))
		}
		rows = append(rows, []string{format.Escape(h.Name), h.Role, state, dash(format.Escape(h.Version)), dash(h.Configuration), clock,
			shortTime(h.ExpiresNs), dash(format.Escape(h.Address)), shortTime(h.SinceNs)})
	}
	if o.wrong && len(wrong) == 0 {
		return nil
	}
	if err := table(env.Stdout, o.bare, rows); err != nil || len(wrong) == 0 {
		return err
	}
	if _, err := fmt.Fprintf(env.Stdout, "\n%s\n", strings.Join(wrong, "\n")); err != nil || !o.wrong {
		return err
	}
	return errProblems
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func revokeHost(ctx context.Context, env *command.Env, c *client.Client, o *options) error {
	name := o.args[0]
	r, err := c.RevokeHost(ctx, &msg.RevokeHostRequest{Name: name})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(env.Stdout, "%s is shut out: certificates revoked: %d, connections closed: %d, tokens revoked: %d\n",
		format.Escape(name), r.Certificates, r.Connections, r.Tokens)
	return err
}

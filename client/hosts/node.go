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

  list           list them, with differences to the controller
  revoke NAME    shut a host out

Example:
  sluice node list --problems
`

const listNodesUsage = `usage: sluice node list [options]

Shows the hosts of the cluster, a line each: the controller, the nodes, and login hosts.

  STATE        state of a node
  VERSION      release of the host's daemon
  CONF         the host's configuration: current, behind (it has not applied the last change), or different (it has its own files)
  CLOCK        time by which its clock is ahead of the controller's, if more than five seconds
  CERTIFICATE  end of its certificate
  SINCE        start of its connection

A dash means unknown; login hosts do not report their configuration. Below the list stand the problems of each host: another release,
configuration or clock, no connection, a certificate that should have been renewed, a daemon that was refused.

Options:
  --problems       only hosts with problems; exit status 1 if there are any
  -h, --noheader   without headings
  --help           this text

Example, for cron, which mails the output:
  sluice node list --problems -h
`

const revokeHostUsage = `usage: sluice node revoke NAME

Shuts the host NAME out: revokes its certificates and tokens, and closes its connections. If it is a node, it becomes DOWN, and its
jobs are requeued or end as on a failed node. Processes that still run there are killed when it has joined again. For root and
SlurmUser, on the controller.

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

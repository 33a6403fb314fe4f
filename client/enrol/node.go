package enrol

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
)

// NodeVerb is `sluice node`.
func NodeVerb() *command.Verb {
	return &command.Verb{
		Name: "node", Line: "list the hosts, or revoke one (node list, node revoke NAME)",
		Page: command.Page{
			About:    "The hosts of the cluster. For root and SlurmUser.",
			Examples: "  sluice node list --problems\n",
		},
		Verbs: []*command.Verb{listHostsVerb(), revokeHostVerb()},
	}
}

func listHostsVerb() *command.Verb {
	return &command.Verb{
		Name: "list", Line: "list them, with differences to the controller",
		Page: command.Page{
			About: `Shows one line for each host of the cluster: the controller, the nodes, and login hosts.

  STATE        state of a node
  VERSION      release of the host's daemon
  CONF         the host's configuration: current, behind (it has not applied the last change), or different (it has its own files)
  CLOCK        time by which its clock is ahead of the controller's, if more than five seconds
  CERTIFICATE  end of its certificate
  SINCE        start of its connection

A dash means unknown; login hosts do not report their configuration. Below the list stand the problems of each host: another release,
configuration or clock, no connection, a certificate that should have been renewed, a daemon that was refused.`,
			Options: []command.Option{
				{Name: opt.Name{Long: "problems"}, Help: "only hosts with problems; exit status 1 if there are any"}, noHeader},
			Examples: "  sluice node list --problems -h     for cron, which mails the output\n",
		},
		Run: connected(listHosts),
	}
}

func listHosts(ctx context.Context, call *command.Call, c *client.Client) error {
	r, err := c.Hosts(ctx, &msg.HostsRequest{})
	if err != nil {
		return err
	}
	rows := [][]string{{"NAME", "ROLE", "STATE", "VERSION", "CONF", "CLOCK", "CERTIFICATE", "ADDRESS", "SINCE"}}
	var problems []string
	only := call.Given("problems")
	for _, h := range r.Hosts {
		for _, p := range h.Problems {
			problems = append(problems, format.Escape(h.Name+": "+p))
		}
		if only && len(h.Problems) == 0 {
			continue
		}
		state, clock := "", ""
		if h.Role == "compute" {
			state = format.NodeStateComplete(&msg.NodeRecord{State: h.State, StateFlags: h.StateFlags})
		}
		if h.ClockOffNs != 0 {
			clock = fmt.Sprintf("%+ds", h.ClockOffNs/int64(time.Second))
		}
		rows = append(rows, []string{format.Escape(h.Name), h.Role, dash(state), dash(format.Escape(h.Version)), dash(h.Configuration),
			dash(clock), dash(moment(h.ExpiresNs)), dash(format.Escape(h.Address)), dash(moment(h.SinceNs))})
	}
	if only && len(problems) == 0 {
		return nil
	}
	if err := table(call.Stdout, call.Given("noheader"), rows); err != nil || len(problems) == 0 {
		return err
	}
	if _, err := fmt.Fprintf(call.Stdout, "\n%s\n", strings.Join(problems, "\n")); err != nil || !only {
		return err
	}
	return command.ExitCode(1) // they have been printed
}

func revokeHostVerb() *command.Verb {
	return &command.Verb{
		Name: "revoke", Args: "NAME", Line: "shut a host out",
		Page: command.Page{
			About: `Shuts the host NAME out: revokes its certificates and tokens, and closes its connections. If it is a node, it becomes
DOWN, and its jobs are requeued or end as on a failed node. Processes that still run there are killed when it has joined
again. For root and SlurmUser, on the controller.

To let it in again: sluice token create --node NAME`,
			Examples: "  sluice node revoke n7\n",
		},
		Run: connected(revokeHost),
	}
}

func revokeHost(ctx context.Context, call *command.Call, c *client.Client) error {
	name := call.Args[0]
	r, err := c.RevokeHost(ctx, &msg.RevokeHostRequest{Name: name})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(call.Stdout, "%s is revoked: certificates revoked: %d, connections closed: %d, tokens revoked: %d\n",
		format.Escape(name), r.Certificates, r.Connections, r.Tokens)
	return err
}

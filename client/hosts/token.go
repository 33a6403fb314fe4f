package hosts

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strconv"
	"time"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
)

const tokenUsage = `usage: sluice token COMMAND [options]

Tokens let a host join the cluster once: they are for one name and one role, and good for a quarter of an hour.
For root and SlurmUser, on the controller.

  create --node NAME   make a token and print it
  list                 show the tokens of the last days, without their secrets
  revoke ID            make a token worthless that has not been used

Example:
  controller# sluice token create --node n7
  sluice-join-1.eyJ…
  n7# sluice-noded --join sluice-join-1.eyJ…
`

const createUsage = `usage: sluice token create --node NAME [options]

Makes a token with which the host NAME can join the cluster, once, and prints it. Whoever has it can be that host: hand it on as
you would a password. It also says where the controller is and how to know it.

Options:
  --node NAME      the host; for a compute host a node of slurm.conf
  --role ROLE      compute, or login: a host that runs no jobs (default: compute)
  --ttl TIME       how long the token can be used, as 90s, 15m or 24h (default: 15m)
  --any-node       also for a node that slurm.conf does not have yet
  --help           this text

Examples:
  sluice token create --node n7
  sluice token create --node login1 --role login --ttl 1h
`

const listUsage = `usage: sluice token list [-h]

Shows join tokens: valid, used, expired or revoked. What was used or has expired is shown for a day.

Options:
  -h, --noheader   without headings
  --help           this text
`

const revokeTokenUsage = `usage: sluice token revoke ID

Makes a token worthless that has not been used. The id is what ` + "`sluice token list`" + ` shows. A host that has used its token
is shut out by ` + "`sluice node revoke`" + `.
`

// Token runs `sluice token`.
func Token(env *command.Env, args []string) int {
	return main(env, "token", tokenUsage, map[string]verb{
		"create": {usage: createUsage, run: createToken, flags: func(f *flag.FlagSet, o *options) {
			f.StringVar(&o.node, "node", "", "")
			f.StringVar(&o.role, "role", "compute", "")
			f.DurationVar(&o.ttl, "ttl", 15*time.Minute, "")
			f.BoolVar(&o.anyNode, "any-node", false, "")
		}},
		"list":   {usage: listUsage, run: listTokens, flags: noHeader},
		"revoke": {usage: revokeTokenUsage, run: revokeToken, args: 1},
	}, args)
}

func noHeader(f *flag.FlagSet, o *options) {
	f.BoolVar(&o.bare, "h", false, "")
	f.BoolVar(&o.bare, "noheader", false, "")
}

func createToken(ctx context.Context, env *command.Env, c *client.Client, o *options) error {
	if o.node == "" {
		return errors.New("name the host: --node NAME")
	}
	r, err := c.CreateToken(ctx, &msg.CreateTokenRequest{Node: o.node, Role: o.role, TtlNs: int64(o.ttl), AnyNode: o.anyNode})
	if err != nil {
		return err
	}
	login := ""
	if o.role == "login" {
		login = "--login "
	}
	if command.IsTerminal(env.Stderr) {
		fmt.Fprintf(env.Stderr, "Token %s is good until %s. Run this on %s (or give --join - and paste it):\n  sluice-noded %s--join %s\n",
			r.Id, shortTime(r.ExpiresNs), format.Escape(o.node), login, r.Text)
	}
	_, err = fmt.Fprintln(env.Stdout, r.Text)
	return err
}

func listTokens(ctx context.Context, env *command.Env, c *client.Client, o *options) error {
	r, err := c.Tokens(ctx, &msg.TokensRequest{})
	if err != nil {
		return err
	}
	rows := [][]string{{"ID", "HOST", "ROLE", "CREATED", "EXPIRES", "STATE", "BY"}}
	for _, t := range r.Tokens {
		rows = append(rows, []string{t.Id, format.Escape(t.Node), t.Role, shortTime(t.CreatedNs), shortTime(t.ExpiresNs), t.State,
			strconv.Itoa(int(t.Uid))})
	}
	return table(env.Stdout, o.bare, rows)
}

func revokeToken(ctx context.Context, env *command.Env, c *client.Client, o *options) error {
	r, err := c.RevokeToken(ctx, &msg.RevokeTokenRequest{Id: o.args[0]})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(env.Stdout, "token %s for %s is worth nothing now\n", o.args[0], format.Escape(r.Node))
	return err
}

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

A token lets one host join the cluster, once, under one name and in one role. It is valid for 15 minutes by default.
For root and SlurmUser, on the controller.

  create --node NAME   create a token and print it
  list                 list the tokens, without their secrets
  revoke ID            revoke a token that has not been used

Example:
  controller# sluice token create --node n7
  sluice-join-1.eyJ…
  n7# sluice-noded --join sluice-join-1.eyJ…
`

const createUsage = `usage: sluice token create --node NAME [options]

Creates a token with which the host NAME can join the cluster once, and prints it. Anybody who has the token can join as that host, so
keep it like a password. It contains the address of the controller and the fingerprint of its certificate authority.

Options:
  --node NAME      the host; for a compute host a node of slurm.conf
  --role ROLE      compute, or login: a host that runs no jobs (default: compute)
  --ttl TIME       validity of the token, such as 90s, 15m or 24h (default: 15m)
  --any-node       also for a node that is not in slurm.conf yet
  --help           this text

Examples:
  sluice token create --node n7
  sluice token create --node login1 --role login --ttl 1h
`

const listUsage = `usage: sluice token list [-h]

Lists join tokens: valid, used, expired or revoked. Used and expired tokens are listed for a day.

Options:
  -h, --noheader   without headings
  --help           this text
`

const revokeTokenUsage = `usage: sluice token revoke ID

Revokes a token that has not been used. ` + "`sluice token list`" + ` shows the ids. To shut out a host that has used its token, run
` + "`sluice node revoke`" + `.
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

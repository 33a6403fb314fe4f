package enrol

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
)

// TokenVerb is `sluice token`.
func TokenVerb() *command.Verb {
	return &command.Verb{
		Name: "token", Line: "create and list tokens with which hosts join (token create --node NAME)",
		Page: command.Page{
			About: `A token lets one host join the cluster, once, under one name and in one role. It is valid for 15 minutes by default. For
root and SlurmUser, on the controller.`,
			Examples: `  controller# sluice token create --node n7
  sluice-join-1.eyJ…
  n7# sluice-noded --join sluice-join-1.eyJ…
`,
		},
		Verbs: []*command.Verb{createVerb(), listTokensVerb(), revokeTokenVerb()},
	}
}

func createVerb() *command.Verb {
	return &command.Verb{
		Name: "create", Line: "create a token and print it",
		Page: command.Page{
			Usage: "Usage: sluice token create --node NAME [OPTION...]",
			About: `Creates a token with which the host NAME can join the cluster once, and prints it. Anybody who has the token can join as
that host, so keep it like a password. It contains the address of the controller and the fingerprint of its certificate
authority.`,
			Options: []command.Option{
				{Name: opt.Name{Long: "node", Arg: opt.Required}, Meta: "NAME", Help: "the host; for a compute host a node of slurm.conf"},
				{Name: opt.Name{Long: "role", Arg: opt.Required}, Meta: "ROLE", Help: "compute, or login: a host that runs no jobs",
					Default: "compute"},
				{Name: opt.Name{Long: "ttl", Arg: opt.Required}, Meta: "TIME", Help: "validity of the token, such as 90s, 15m or 24h",
					Is: command.Span, Default: "15m"},
				{Name: opt.Name{Long: "any-node"}, Help: "also for a node that is not in slurm.conf yet"},
			},
			Examples: `  sluice token create --node n7
  sluice token create --node login1 --role login --ttl 1h
`,
		},
		Run: func(call *command.Call) error {
			if !call.Given("node") {
				return errors.New("name the host: --node NAME")
			}
			return connected(createToken)(call)
		},
	}
}

func createToken(ctx context.Context, call *command.Call, c *client.Client) error {
	node, role := call.Text("node"), call.Text("role")
	r, err := c.CreateToken(ctx, &msg.CreateTokenRequest{Node: node, Role: role, TtlNs: int64(call.Duration("ttl")),
		AnyNode: call.Given("any-node")})
	if err != nil {
		return err
	}
	if command.IsTerminal(call.Stderr) {
		fmt.Fprint(call.Stderr, howToJoin(r, node, role))
	}
	_, err = fmt.Fprintln(call.Stdout, r.Text)
	return err
}

// howToJoin is the explanation of a token for users at a terminal.
func howToJoin(r *msg.CreateTokenReply, node, role string) string {
	login, until := "", ""
	if role == "login" {
		login = "--login "
	}
	if r.ExpiresNs != 0 {
		until = " is valid until " + moment(r.ExpiresNs)
	}
	return fmt.Sprintf("Token %s%s. Run this on %s (or give --join - and paste it):\n  sluice-noded %s--join %s\n", r.Id, until,
		format.Escape(node), login, r.Text)
}

func listTokensVerb() *command.Verb {
	return &command.Verb{
		Name: "list", Line: "list the tokens, without their secrets",
		Page: command.Page{
			About:   "Lists join tokens: valid, used, expired or revoked. Used and expired tokens are listed for a day.",
			Options: []command.Option{noHeader},
		},
		Run: connected(listTokens),
	}
}

func listTokens(ctx context.Context, call *command.Call, c *client.Client) error {
	r, err := c.Tokens(ctx, &msg.TokensRequest{})
	if err != nil {
		return err
	}
	rows := [][]string{{"ID", "HOST", "ROLE", "CREATED", "EXPIRES", "STATE", "BY"}}
	for _, t := range r.Tokens {
		rows = append(rows, []string{t.Id, format.Escape(t.Node), t.Role, dash(moment(t.CreatedNs)), dash(moment(t.ExpiresNs)), t.State,
			strconv.Itoa(int(t.Uid))})
	}
	return table(call.Stdout, call.Given("noheader"), rows)
}

func revokeTokenVerb() *command.Verb {
	return &command.Verb{
		Name: "revoke", Args: "ID", Line: "revoke a token that has not been used",
		Page: command.Page{
			About: `Revokes a token that has not been used. "sluice token list" shows the ids. To shut out a host that has used its token, run
"sluice node revoke".`,
		},
		Run: connected(revokeToken),
	}
}

func revokeToken(ctx context.Context, call *command.Call, c *client.Client) error {
	r, err := c.RevokeToken(ctx, &msg.RevokeTokenRequest{Id: call.Args[0]})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(call.Stdout, "token %s for %s is revoked\n", format.Escape(call.Args[0]), format.Escape(r.Node))
	return err
}

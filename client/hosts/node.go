package hosts

import (
	"context"
	"fmt"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
)

const nodeUsage = `usage: sluice node revoke NAME

Shuts the host NAME out, at once and for good: no certificate that it has been given counts any more, its connections are closed,
and tokens for it are revoked. If it is a node, it is DOWN, and its jobs are requeued or end as on a node that fails; what still
runs there is killed when it has joined again. For root and SlurmUser, on the controller.

To let it in again: sluice token create --node NAME

Example:
  sluice node revoke n7
`

// Node runs `sluice node`.
func Node(env *command.Env, args []string) int {
	return main(env, "node", nodeUsage, map[string]verb{"revoke": {usage: nodeUsage, run: revokeHost, args: 1}}, args)
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

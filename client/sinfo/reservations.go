package sinfo

import (
	"context"
	"fmt"

	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/view"
)

// printReservations is sinfo -T.
func printReservations(ctx context.Context, env *command.Env, o *options) int {
	c, err := env.Dial(ctx)
	if err != nil {
		return env.Exit(view.LoadFailed(env, "slurm_load_reservations", err))
	}
	defer func() { _ = c.Close() }()
	reply, err := c.Reservations(ctx, &msg.ReservationsRequest{})
	if o.given.Verbose() > 0 && !o.noHeader && !o.document.Wanted {
		fmt.Fprintf(env.Stdout, "%s\n", view.Context(env, 0).AppendStamp(nil))
	}
	switch {
	case err != nil:
		return env.Exit(view.LoadFailed(env, "slurm_load_reservations", err))
	case o.document.Wanted:
		return view.ReservationsDocument(env, o.document, reply.GetReservations(), reply.GetNowNs())
	case len(reply.GetReservations()) == 0:
		fmt.Fprintln(env.Stdout, "No reservations in the system")
		return 0
	}
	if _, err := env.Stdout.Write(format.AppendReservations(nil, view.Context(env, reply.GetNowNs()), reply.GetReservations(),
		!o.noHeader)); err != nil {
		return 1
	}
	return 0
}

package sacctmgr

import (
	"context"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/view"
	"github.com/sluice-hpc/sluice/conf/hostlist"
)

// reservationRows returns the existing reservations; past ones are not kept.
func reservationRows(ctx context.Context, m *run) (rows []mgrRow, err error) {
	fc := view.Context(m.env, 0)
	err = m.ask(ctx, func(c *client.Client) error {
		reply, err := c.Reservations(ctx, &msg.ReservationsRequest{})
		for _, r := range reply.GetReservations() {
			rows = append(rows, mgrRow{"cluster": m.env.ClusterName(), "name": r.GetName(), "tres": r.GetTres(), "nodes": r.GetNodes(),
				"start": string(fc.AppendTime(nil, r.GetStartNs(), "Unknown")), "end": string(fc.AppendTime(nil, r.GetEndNs(), "Unknown")),
				"flags": strings.Join(format.ResvFlags(r), ",")})
		}
		return err
	})
	m.where = slices.DeleteFunc(m.where, func(c mgrCondition) bool {
		if c.key == "node" {
			rows = slices.DeleteFunc(rows, func(r mgrRow) bool { return !share(r["nodes"], strings.Join(c.values, ",")) })
		}
		return c.key == "node"
	})
	return rows, err
}

// share reports whether two lists have a node in common.
func share(a, b string) bool {
	one, _ := hostlist.Expand(a)
	other, _ := hostlist.Expand(b)
	return slices.ContainsFunc(one, func(n string) bool { return slices.Contains(other, n) })
}

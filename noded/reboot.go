package noded

import (
	"context"

	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// reboot runs RebootProgram once per boot: the order may be repeated after the link was lost. An order for an earlier boot has
// been carried out.
func (n *node) reboot(ctx context.Context, r *pb.RebootOrder) {
	if r.GetBootId() != n.inv.BootID || n.ending || r.GetProgram() == "" {
		return
	}
	n.ending = true
	n.log.Warn("rebooting on the controller's order", "program", r.GetProgram())
	n.work(ctx, func() func() {
		_, err := n.hook(ctx, &nodepb.Hook{Kind: nodepb.HookKind_HOOK_REBOOT, Program: r.GetProgram()})
		return func() {
			if err != nil {
				n.ending = false // let the controller repeat the order
				n.log.Error("cannot reboot", "program", r.GetProgram(), "err", err)
			}
		}
	})
}

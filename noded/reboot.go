package noded

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"time"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// reboot runs RebootProgram, once in this boot: the order may come again, after the link was lost. An order that was meant for an
// earlier boot has been carried out.
func (n *node) reboot(ctx context.Context, r *pb.RebootOrder) {
	words := strings.Fields(r.GetProgram())
	if r.GetBootId() != n.inv.BootID || n.ending || len(words) == 0 {
		return
	}
	n.ending = true
	n.log.Warn("rebooting, as the controller says", "program", r.GetProgram())
	n.work(ctx, func() func() {
		err := runReboot(n.o.NodeName, words)
		return func() {
			if err != nil {
				n.ending = false // the controller may say it again
				n.log.Error("cannot reboot", "program", r.GetProgram(), "err", err)
			}
		}
	})
}

// runReboot runs the program in a session of its own, which the end of this daemon does not end.
func runReboot(node string, words []string) error {
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "SLURMD_NODENAME=" + node}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if text := strings.TrimSpace(string(out)); err != nil && text != "" {
		return errors.New(err.Error() + ": " + text)
	}
	return err
}

package noded

import (
	"errors"
	"log/slog"

	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
)

// errReregister ends the node's own stream after SIGHUP: the next one starts with the node's complete state.
var errReregister = errors.New("SIGHUP: registering again")

// reread does what slurmd(8) documents for SIGHUP (reread the configuration, register again with the current processors and
// devices) and SIGUSR2 (reread the debug level). The other settings come from the controller.
func (n *node) reread(r *nodepb.Reread) {
	if !r.KeepLevel && n.o.Level != nil {
		n.o.Level.Set(slog.Level(r.LogLevel))
	}
	if r.Register && n.stream != nil {
		n.stream.Refuse(errReregister)
		n.stream = nil
	}
}

package noded

import (
	"errors"
	"log/slog"

	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
)

// errReregister is why a node ends its own stream after SIGHUP: the next one begins with everything that it has.
var errReregister = errors.New("SIGHUP: registering again")

// reread does what slurmd(8) says of SIGHUP (the configuration was read again, and this node registers again, with the processors and
// devices that there are now) and of SIGUSR2 (the debug level was). The rest of the settings is the controller's to say.
func (n *node) reread(r *nodepb.Reread) {
	if !r.KeepLevel && n.o.Level != nil {
		n.o.Level.Set(slog.Level(r.LogLevel))
	}
	if r.Register && n.stream != nil {
		n.stream.Refuse(errReregister)
		n.stream = nil
	}
}

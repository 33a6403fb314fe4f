package noded

import (
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/internal/trusted"
)

// SessionsSocket is the socket through which `sluice adopt` finds the node daemons of a host (client/adopt).
func SessionsSocket(cluster, node string) string {
	return filepath.Join("/run/sluice", cluster, node+".sessions")
}

// listenSessions creates the socket for the adoption of sshd sessions, accessible to root alone. Without it, the host still runs
// jobs.
func (o *Options) listenSessions() *net.UnixListener {
	if o.Sessions == "" || o.Login {
		return nil
	}
	l, err := sessionsAt(o.Sessions)
	if err != nil {
		o.Log.Warn("`sluice adopt` cannot adopt ssh sessions on this host", "err", err)
		return nil
	}
	return l
}

func sessionsAt(path string) (*net.UnixListener, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("cannot create the directory of the session socket: %w", err)
	}
	if _, err := trusted.Path(dir); err != nil { // nobody else may redirect the removal and creation below
		return nil, fmt.Errorf("cannot create the session socket: %w", err)
	}
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("cannot replace the old socket: %w", err)
	}
	old := unix.Umask(0o177)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	unix.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", path, err)
	}
	return l, nil
}

package noded

import (
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/internal/trusted"
)

// SessionsSocket is where `sluice adopt` looks for the node daemons of a host (client/adopt).
func SessionsSocket(cluster, node string) string {
	return filepath.Join("/run/sluice", cluster, node+".sessions")
}

// listenSessions makes the socket by which sessions of sshd are adopted, for root alone. A host runs jobs also where it cannot be made.
func (o *Options) listenSessions() *net.UnixListener {
	if o.Sessions == "" || o.Login {
		return nil
	}
	l, err := sessionsAt(o.Sessions)
	if err != nil {
		o.Log.Warn("users cannot log in to their jobs by `sluice adopt`", "err", err)
		return nil
	}
	return l
}

func sessionsAt(path string) (*net.UnixListener, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("cannot make the folder of the socket for sessions: %w", err)
	}
	if _, err := trusted.Path(dir); err != nil { // what is removed and made there is what this daemon means
		return nil, fmt.Errorf("cannot make the socket for sessions: %w", err)
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

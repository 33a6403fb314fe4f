package root

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
)

// spool is this node's spool directory: steps/ and shims/ (package step), hooks/ (package hook), noded.lock, and settings.pb, the
// controller's last settings, so that jobs that end without a controller still get their epilog.
type spool struct {
	dir  string
	lock *os.File
}

// openSpool creates the directory and takes its lock: one daemon per spool.
func openSpool(dir string, log *slog.Logger) (*spool, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot use the spool directory: %w", err)
	}
	// Users need search permission to reach their script, and see nothing else.
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, fmt.Errorf("cannot create the spool directory: %w", err)
	}
	if fi, err := os.Stat(dir); err == nil && fi.Mode().Perm()&0o002 != 0 {
		return nil,
			fmt.Errorf(
				"cannot use the spool directory %s: it is writable for everybody, who could plant files that this daemon trusts; "+
					"chmod o-w it", dir)
	}
	path := filepath.Join(dir, "noded.lock")
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE, 0o600) // read-only: an open writable file would prevent a remount as read-only
	if err != nil {
		return nil, fmt.Errorf("cannot open the lock of the spool directory: %w", err)
	}
	if err := lock(f, path); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil,
				fmt.Errorf(
					"cannot use the spool directory %s: the node daemon with process id %d works there; stop it, or give this one "+
						"another spool", dir, holder(path))
		}
		return nil, fmt.Errorf("cannot lock %s: %w", path, err)
	}
	_ = os.WriteFile(path, fmt.Appendf(nil, "%d\n", os.Getpid()), 0o600)
	warnUnreachable(dir, log)
	return &spool{dir: dir, lock: f}, nil
}

// lockPatience is how long a lock may outlive the process that took it.
const lockPatience = 5 * time.Second

// lock takes the lock at once or fails. Only when its holder was killed does it wait a little: a shim that was being forked at
// that moment has a copy of the descriptor until its execve.
func lock(f *os.File, path string) error {
	for deadline := time.Now().Add(lockPatience); ; time.Sleep(5 * time.Millisecond) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(deadline) {
			return err
		}
		if pid := holder(path); pid != 0 && alive(pid) {
			return err
		}
	}
}

// alive is false for a process that has ended, reaped or not.
func alive(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	_, state, _ := strings.Cut(string(b[strings.LastIndexByte(string(b), ')')+1:]), " ")
	return err == nil && !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}

// holder returns the process whose id is in the lock file, 0 if there is none yet.
func holder(path string) int {
	b, _ := os.ReadFile(path)
	pid, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	return pid
}

func (s *spool) close() { s.lock.Close() }

// warnUnreachable warns if users cannot reach their scripts.
func warnUnreachable(dir string, log *slog.Logger) {
	if os.Geteuid() != 0 {
		return
	}
	for ; ; dir = filepath.Dir(dir) {
		if fi, err := os.Stat(dir); err == nil && fi.Mode().Perm()&0o001 == 0 {
			log.Warn("users cannot reach their batch scripts: chmod o+x this folder, or use another spool", "folder", dir)
		}
		if dir == "/" {
			return
		}
	}
}

// loadSettings returns the controller's last settings, or nil.
func (s *spool) loadSettings() *pb.NodeSettings {
	b, err := os.ReadFile(filepath.Join(s.dir, "settings.pb"))
	if err != nil || len(b) == 0 { // empty: the power failed just after it was written
		return nil
	}
	out := &pb.NodeSettings{}
	if proto.Unmarshal(b, out) != nil {
		return nil
	}
	return out
}

func (s *spool) saveSettings(set *pb.NodeSettings) error {
	b, err := proto.Marshal(set)
	if err != nil {
		return err
	}
	path := filepath.Join(s.dir, "settings.pb")
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"

	"github.com/sluice-hpc/sluice/internal/inherit"
	"github.com/sluice-hpc/sluice/internal/logfile"
	"github.com/sluice-hpc/sluice/internal/passwd"
	"github.com/sluice-hpc/sluice/internal/tcp"
	"github.com/sluice-hpc/sluice/noded"
	"github.com/sluice-hpc/sluice/noded/confine"
	"github.com/sluice-hpc/sluice/noded/hw"
	"github.com/sluice-hpc/sluice/noded/privsep"
	"github.com/sluice-hpc/sluice/noded/relay"
)

// Descriptors of noded-link: its end of the connection with noded-root, and the relay's socket, if any. confine.Link closes all
// others.
const (
	linkFD  = 3
	relayFD = 4
	// metricsFD is the listening socket for metrics.
	metricsFD = 5
)

// confined is the last argument of a noded-link that has dropped its privileges.
const confined = "confined"

func init() {
	if len(os.Args) > 1 && os.Args[1] == "link" {
		confine.Name("noded-link")
	} else if len(os.Args) < 2 || os.Args[1] != "stepd" {
		confine.Name("sluice-noded")
	}
}

// failpointVar tells a test daemon where to crash (package failpoint). Only the first noded-link gets it.
const failpointVar = "SLUICE_FAILPOINT"

// apart returns a function that starts noded-link as a separate process.
func apart(node string, logs *logfile.Log) (func(orders, relay, metrics *os.File) (func() error, error), error) {
	uid, gid, err := linkUser()
	if err != nil {
		return nil, err
	}
	fail := os.Getenv(failpointVar)
	return func(f, listening, metrics *os.File) (func() error, error) {
		cmd := exec.Command("/proc/self/exe")
		cmd.Args = []string{"sluice-noded", "link", node, strconv.Itoa(int(uid)), strconv.Itoa(int(gid))}
		cmd.Env, cmd.Dir = confine.Environment(), "/"
		if fail != "" {
			cmd.Env = append(cmd.Env, failpointVar+"="+fail)
			fail = ""
		}
		cmd.ExtraFiles = []*os.File{f, listening, metrics}
		cmd.Stderr = newLines(func(line []byte) error { return logs.Line(line, cmd.Process.Pid) })
		cmd.WaitDelay = time.Second
		if err := inherit.Start(cmd); err != nil {
			return nil, err
		}
		return func() error { return waitFor(cmd) }, nil
	}, nil
}

// linkUser returns the ids of the unprivileged half.
func linkUser() (uid, gid uint32, err error) {
	uid, gid = confine.UID, confine.UID
	if u, ok := passwd.User(confine.User); ok {
		uid, gid = u.UID, u.GID
	}
	if uid == 0 || gid == 0 {
		return 0, 0, fmt.Errorf("account %s has the uid or gid of root: give it a user and a group of its own", confine.User)
	}
	return uid, gid, nil
}

// idsOf parses the ids of linkUser.
func idsOf(args []string) (uid, gid uint32, err error) {
	u, err1 := strconv.ParseUint(args[0], 10, 32)
	g, err2 := strconv.ParseUint(args[1], 10, 32)
	if err1 != nil || err2 != nil || u == 0 || g == 0 {
		return 0, 0, fmt.Errorf("%q is not a uid and gid to run as", args)
	}
	return uint32(u), uint32(g), nil
}

// linkPatience is how long noded-link may take to end after its connection has ended.
const linkPatience = 5 * time.Second

func waitFor(cmd *exec.Cmd) error {
	t := time.AfterFunc(linkPatience, func() { _ = cmd.Process.Kill() })
	defer t.Stop()
	return cmd.Wait()
}

// linkMain is noded-link: link NODE UID GID, which drops its privileges and executes itself with one more argument.
func linkMain(args []string) {
	if err := linkRun(args); err != nil {
		fmt.Fprintln(os.Stderr, "noded-link:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func linkRun(args []string) error {
	if len(args) == 3 {
		uid, gid, err := idsOf(args[1:])
		if err != nil {
			return err
		}
		_ = inherit.Spare(linkSpared) // noded-root has reported failures
		return confine.Link(uid, gid, append(os.Args, confined), os.Environ())
	}
	if len(args) != 4 || args[3] != confined {
		return fmt.Errorf("%q: internal command, run only by the node daemon", args)
	}
	if err := confine.Seal(); err != nil {
		return err
	}
	// noded-link ends when noded-root does.
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGPIPE)
	debug.SetGCPercent(400) // as in noded-root
	// One goroutine does the work and the others wait for sockets: waking a second thread costs more than handling events in turn.
	runtime.GOMAXPROCS(1)
	conn, err := privsep.FromFD(linkFD)
	if err != nil {
		return err
	}
	level := &slog.LevelVar{}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})).With("node", args[0])
	sockets := noded.Sockets{Relay: func() (*net.UnixListener, error) {
		f := os.NewFile(relayFD, "relay")
		defer f.Close()
		return relay.FromFile(f)
	}, Metrics: func(ctx context.Context) (net.Listener, error) {
		f := os.NewFile(metricsFD, "metrics")
		defer f.Close()
		return tcp.FromFile(ctx, f)
	}}
	return noded.Link(context.Background(), conn, sockets, hw.Linux{}, log, level)
}

package stepd

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/internal/inherit"
	"github.com/sluice-hpc/sluice/internal/logfile"
	"github.com/sluice-hpc/sluice/noded/cgroup"
	"github.com/sluice-hpc/sluice/noded/container"
	"github.com/sluice-hpc/sluice/noded/step/folder"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Main runs the hidden subcommand "stepd" of the node daemon's binary with its arguments. The listening socket is descriptor 3.
func Main(args []string) int {
	if len(args) > 0 && args[0] == trampolineArg {
		return trampoline(args[1:])
	}
	if len(args) > 0 && args[0] == container.Arg {
		return container.Main(args[1:])
	}
	if len(args) > 0 && args[0] == "nothing" {
		return 0
	}
	fl := flag.NewFlagSet("stepd", flag.ContinueOnError)
	spool := fl.String("spool", "", "the node's spool `folder`")
	groups := fl.String("cgroup", "", "`name` of the node's cgroup root")
	plugin := fl.String("cgroup-plugin", "", "CgroupPlugin of cgroup.conf")
	debugLog := fl.Bool("debug", false, "log more")
	if err := fl.Parse(args); err != nil {
		return 2
	}
	if *spool == "" || *groups == "" || fl.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "stepd: started by the node daemon, not by hand")
		return 2
	}
	level := slog.LevelInfo
	if *debugLog {
		level = slog.LevelDebug
	}
	logs, err := logfile.OpenChild()
	if err != nil {
		fmt.Fprintln(os.Stderr, "stepd:", err)
		return 2
	}
	log := slog.New(slog.NewMultiHandler(logs.Handler(level), logs.Syslog())).With("shim", os.Getpid())
	if err := serve(*spool, *groups, *plugin, log); err != nil {
		log.Error("shim failed", "err", err)
		return 1
	}
	return 0
}

func serve(spool, groups, plugin string, log *slog.Logger) error {
	settle()
	l, err := listener()
	if err != nil {
		return err
	}
	root, err := cgroup.Open(groups, plugin)
	if err != nil {
		return err
	}
	done := make(chan struct{})
	s := newShim(spool, root, log, sync.OnceFunc(func() { close(done) }))
	srv, err := ttrpc.NewServer()
	if err != nil {
		return fmt.Errorf("cannot make a server: %w", err)
	}
	pb.RegisterStepAPIService(srv, s)
	go func() {
		if err := srv.Serve(context.Background(), &countingListener{l, s}); err != nil {
			log.Debug("server ended", "err", err)
		}
	}()
	time.AfterFunc(firstCall, s.endIfUnused)
	<-done
	_ = os.Remove(folder.Socket(spool, os.Getpid())) // while the pid is still this process's
	return nil
}

// firstCall bounds how long a shim waits for the node daemon that started it.
const firstCall = 10 * time.Second

// settle prepares a long-lived process: reaper of orphans, spared by the OOM killer, immune to signals of terminals and service
// managers. Signals are caught, not ignored: an ignored signal would stay ignored in the job.
func settle() {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	writeOOM("self", "-999")
	inherit.Close(1) // except the socket
	heard := []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGPIPE}
	for n := syscall.Signal(1); n < 65; n++ {
		if signal.Ignored(n) && n != syscall.SIGKILL && n != syscall.SIGSTOP {
			heard = append(heard, n)
		}
	}
	signal.Notify(make(chan os.Signal, 1), heard...) // a full channel drops
	defaultSignals()
	debug.SetGCPercent(200)
	runtime.GOMAXPROCS(1) // it hardly ever has two things to do, and waking a second thread costs more
}

// defaultSignals resets the two signals that the C library reserves (32 and 33) to their default action. Package os/signal does
// not touch them, and children of some programs, such as GNU make, inherit them ignored and would pass that on to jobs.
func defaultSignals() {
	type action struct {
		handler, flags, restorer uintptr
		mask                     uint64
	}
	for _, sig := range []uintptr{32, 33} {
		_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&action{})), 0, 8, 0, 0)
	}
}

func listener() (net.Listener, error) {
	f := os.NewFile(3, "socket")
	if f == nil {
		return nil, fmt.Errorf("cannot serve: descriptor 3 is not a listening socket")
	}
	unix.CloseOnExec(3)
	l, err := net.FileListener(f)
	f.Close()
	if err != nil {
		return nil, fmt.Errorf("cannot serve on descriptor 3: %w", err)
	}
	return l, nil
}

// countingListener tells the shim how many connections it has.
type countingListener struct {
	net.Listener
	s *shim
}

func (l *countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.s.connected(+1)
	return &countedConn{Conn: c, closed: sync.OnceFunc(func() { l.s.connected(-1) })}, nil
}

type countedConn struct {
	net.Conn
	closed func()
}

func (c *countedConn) Close() error {
	err := c.Conn.Close()
	c.closed()
	return err
}

package step

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/internal/inherit"
	"github.com/sluice-hpc/sluice/internal/logfile"
	"github.com/sluice-hpc/sluice/noded/step/folder"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// shim is a connection to one shim process.
type shim struct {
	pid    int
	client *ttrpc.Client
	api    pb.StepAPIService
	idle   time.Time // since when
	dead   chan struct{}
	other  bool // of another build: it ends its step and gets no more
}

// discard disconnects from a shim that must get no more steps.
func (s *shim) discard() { s.client.Close() }

// end releases an idle shim and waits until it has exited.
func (s *shim) end() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if _, err := s.api.Release(ctx, &pb.ReleaseRequest{End: true}); err == nil {
		select {
		case <-s.dead:
		case <-ctx.Done():
		}
	}
	s.discard()
}

func (s *shim) gone() bool {
	select {
	case <-s.dead:
		return true
	default:
		return false
	}
}

// pool holds the idle shims, the most recently used last; those at the front expire.
type pool struct {
	r   *Runner
	dir string

	mu     sync.Mutex
	idle   []*shim
	closed bool
}

func (p *pool) init(r *Runner) {
	p.r, p.dir = r, filepath.Join(r.o.Spool, folder.Shims)
}

// take returns an idle shim, or starts one.
func (p *pool) take(ctx context.Context) (*shim, error) {
	p.mu.Lock()
	for len(p.idle) > 0 {
		s := p.idle[len(p.idle)-1]
		p.idle = p.idle[:len(p.idle)-1]
		if !s.gone() {
			p.mu.Unlock()
			return s, nil
		}
	}
	closed := p.closed
	p.mu.Unlock()
	if closed {
		return nil, errors.New("the runner has been closed")
	}
	return p.start()
}

func (p *pool) put(s *shim) {
	p.mu.Lock()
	closed := p.closed || s.gone() || s.other
	if !closed {
		s.idle = time.Now()
		p.idle = append(p.idle, s)
	}
	p.mu.Unlock()
	if closed {
		s.end()
	}
}

// housekeep keeps MinIdle shims ready, and expires those above.
func (p *pool) housekeep(ctx context.Context) {
	tick := time.NewTicker(max(p.r.o.IdleTimeout/3, 10*time.Millisecond))
	defer tick.Stop()
	for {
		p.fill(ctx)
		select {
		case <-tick.C:
			p.trim(time.Now())
		case <-ctx.Done():
			return
		}
	}
}

func (p *pool) fill(ctx context.Context) {
	p.mu.Lock()
	n := p.r.o.MinIdle - len(p.idle)
	p.mu.Unlock()
	for ; n > 0 && ctx.Err() == nil; n-- {
		s, err := p.start()
		if err != nil {
			p.r.log.Error("cannot keep a shim ready", "err", err)
			return
		}
		p.put(s)
	}
}

func (p *pool) trim(now time.Time) {
	var old []*shim
	p.mu.Lock()
	for len(p.idle) > p.r.o.MinIdle && now.Sub(p.idle[0].idle) > p.r.o.IdleTimeout {
		old = append(old, p.idle[0])
		p.idle = p.idle[1:]
	}
	p.mu.Unlock()
	for _, s := range old {
		s.discard()
	}
}

// close releases the idle shims and waits briefly until they have exited.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	var wg sync.WaitGroup
	for _, s := range idle {
		wg.Go(s.end)
	}
	wg.Wait()
}

// start creates the socket, so that the shim can be called at once, and passes it to a new shim in its own session.
func (p *pool) start() (*shim, error) {
	dir, err := os.Open(p.dir)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	fresh := filepath.Join(p.dir, ".new-"+strconv.FormatInt(time.Now().UnixNano(), 36))
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: short(dir, filepath.Base(fresh)), Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("cannot make a shim's socket in %s: %w", p.dir, err)
	}
	l.SetUnlinkOnClose(false)
	defer l.Close()
	pid, err := p.spawn(l)
	if err != nil {
		_ = os.Remove(fresh)
		return nil, err
	}
	path := p.socket(pid)
	if err := os.Rename(fresh, path); err != nil {
		_ = os.Remove(fresh)
		return nil, fmt.Errorf("cannot name a shim's socket: %w", err)
	}
	s, err := p.dial(pid)
	if err != nil {
		_ = os.Remove(path)
		return nil, err
	}
	return s, nil
}

func (p *pool) socket(pid int) string { return folder.Socket(p.r.o.Spool, pid) }

func (p *pool) spawn(l *net.UnixListener) (int, error) {
	f, err := l.File()
	if err != nil {
		return 0, fmt.Errorf("cannot pass on a shim's socket: %w", err)
	}
	defer f.Close()
	o := &p.r.o
	args := append(append([]string(nil), o.Command[1:]...), "--spool", o.Spool, "--cgroup", o.CgroupRoot, "--cgroup-plugin", o.CgroupPlugin)
	cmd := exec.Command(o.Command[0], args...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/"}
	if stream := os.Getenv(logfile.JournalVar); stream != "" { // identifies its standard error as the journal's
		cmd.Env = append(cmd.Env, logfile.JournalVar+"="+stream)
	}
	if o.ShimEnv != nil {
		cmd.Env = append(cmd.Env, o.ShimEnv()...)
	}
	cmd.Stderr = o.ShimLog
	cmd.ExtraFiles = []*os.File{f}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := inherit.Start(cmd); err != nil {
		return 0, fmt.Errorf("cannot start a shim (%s): %w", o.Command[0], err)
	}
	if err := p.r.root.Shelter(cmd.Process.Pid); err != nil {
		p.r.log.Warn("cannot move a shim out of the node daemon's cgroup: stopping the service may kill it", "err", err)
	}
	go cmd.Wait() // reaps it; returns when the shim exits
	return cmd.Process.Pid, nil
}

// dial connects to the shim that listens on the socket named by its pid.
func (p *pool) dial(pid int) (*shim, error) {
	dir, err := os.Open(p.dir)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	c, err := net.DialTimeout("unix", short(dir, strconv.Itoa(pid)), 5*time.Second)
	if err != nil {
		return nil, fmt.Errorf("cannot call shim %d: %w", pid, err)
	}
	s := &shim{pid: pid, dead: make(chan struct{})}
	s.client = ttrpc.NewClient(c, ttrpc.WithOnClose(sync.OnceFunc(func() { close(s.dead) })))
	s.api = pb.NewStepAPIClient(s.client)
	return s, nil
}

// redial reconnects to a shim after its connection broke. It returns nil once the shim is certainly dead.
func (p *pool) redial(s *shim) *shim {
	s.discard()
	again, err := p.dial(s.pid)
	if err == nil {
		ctx, cancel := context.WithTimeout(p.r.ctx, p.r.o.AnswerTimeout)
		defer cancel()
		if _, err = again.api.Status(ctx, &pb.StatusRequest{}); err == nil {
			again.other = s.other
			return again
		}
		again.discard()
	}
	p.kill(s.pid)
	return nil
}

// kill makes sure that a shim that does not answer is dead: only then may its step be cleaned up.
func (p *pool) kill(pid int) {
	if isShim(pid, p.r.o.Spool) {
		_ = unix.Kill(pid, unix.SIGKILL)
		for range 1000 {
			if !isShim(pid, p.r.o.Spool) {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	_ = os.Remove(p.socket(pid))
}

// otherBuild reports whether a shim runs another program than new shims, because the node daemon was upgraded or downgraded. Its
// messages and files are readable (StepAPI and Bundle only grow), but it may silently ignore new fields of a bundle, such as a
// limit.
func (p *pool) otherBuild(pid int) bool {
	its, err := os.Stat("/proc/" + strconv.Itoa(pid) + "/exe")
	if err != nil {
		return false
	}
	ours, err := os.Stat(p.r.o.Command[0])
	return err == nil && !os.SameFile(its, ours)
}

// isShim reports whether a pid is a shim of this spool. It checks uid and command line, because the pid may have been reused and
// a user's command line may say anything. The command line is empty once the process has died.
func isShim(pid int, spool string) bool {
	proc := "/proc/" + strconv.Itoa(pid)
	var st unix.Stat_t
	if err := unix.Stat(proc, &st); err != nil || int(st.Uid) != os.Geteuid() && st.Uid != 0 {
		return false
	}
	b, err := os.ReadFile(proc + "/cmdline")
	if err != nil {
		return false
	}
	return containsArgs(b, "--spool", spool)
}

func containsArgs(cmdline []byte, a, b string) bool {
	want := "\x00" + a + "\x00" + b + "\x00"
	for i := 0; i+len(want) <= len(cmdline); i++ {
		if string(cmdline[i:i+len(want)]) == want {
			return true
		}
	}
	return false
}

// short returns a path to name in an open directory that fits into the 108 bytes of a socket address, however deep the spool is.
func short(dir *os.File, name string) string {
	if p := filepath.Join(dir.Name(), name); len(p) < 100 {
		return p
	}
	return "/proc/self/fd/" + strconv.Itoa(int(dir.Fd())) + "/" + name
}

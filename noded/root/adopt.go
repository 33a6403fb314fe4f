package root

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/noded/cgroup"
	"github.com/sluice-hpc/sluice/noded/step"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Sessions of sshd come in by a socket that only root can open. `sluice adopt`, which sshd's PAM stack runs (pam_exec(8)) as root for a
// user whom sshd knows, says one line, the user's uid, and is answered with one line:
//
//	adopted JOB     the process that has started the command is in the allocation of that job now
//	none            no job of the user is on this node
//	suspended JOB   there is one, but it is suspended
//	failed WORDS    there is one, and why the process is not in it
//
// Which process it is the kernel says (SO_PEERCRED) and no line. Nothing of it concerns noded-link or the controller: logins to jobs that
// run do not depend on them.

const (
	adoptPatience = 15 * time.Second // for a whole call
	adoptCalls    = 64               // at a time; others wait
	adoptLine     = 64               // bytes of what is asked
)

// serveAdopt answers until the listener is closed.
func (r *Root) serveAdopt(l *net.UnixListener) {
	turns := make(chan struct{}, adoptCalls)
	for {
		turns <- struct{}{}
		c, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // no descriptor is left
			r.once("cannot take a login in", err)
			time.Sleep(100 * time.Millisecond)
			<-turns
			continue
		}
		r.wg.Go(func() {
			defer func() { _ = c.Close(); <-turns }()
			_ = c.SetDeadline(time.Now().Add(adoptPatience))
			ctx, cancel := context.WithTimeout(r.ctx, adoptPatience)
			defer cancel()
			if answer := r.adoptCall(ctx, c); answer != "" {
				_, _ = c.Write([]byte(answer + "\n"))
			}
		})
	}
}

// adoptCall is one call of `sluice adopt`.
func (r *Root) adoptCall(ctx context.Context, c *net.UnixConn) string {
	peer, err := peerOf(c)
	if err != nil {
		return "failed " + err.Error()
	}
	if peer.Uid != 0 {
		return "failed only root may have processes adopted"
	}
	line, err := bufio.NewReaderSize(c, adoptLine).ReadSlice('\n')
	uid, perr := strconv.ParseUint(strings.TrimSpace(string(line)), 10, 32)
	switch {
	case errors.Is(err, bufio.ErrBufferFull), err == nil && perr != nil:
		return "failed what was asked is no user id"
	case err != nil:
		return ""
	case uid == 0:
		return "failed root is in no job"
	}
	return r.adopt(ctx, uint32(uid), int(peer.Pid))
}

func peerOf(c *net.UnixConn) (peer *unix.Ucred, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	cerr := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err := errors.Join(cerr, err); err != nil {
		return nil, fmt.Errorf("the kernel does not say who asks: %w", err)
	}
	if peer.Pid <= 0 {
		return nil, errors.New("the process that asks is in another PID namespace")
	}
	return peer, nil
}

// adopt puts the parent of a process, which waits for it, into an allocation of the user: the one in which it is already, or the newest
// that takes it.
func (r *Root) adopt(ctx context.Context, uid uint32, asks int) string {
	pid, err := parentOf(asks)
	if err != nil {
		return "failed " + err.Error()
	}
	in, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return "failed " + err.Error()
	}
	suspended := uint32(0)
	for _, k := range r.allocationsOf(uid, string(in)) {
		err := r.steps.Adopt(ctx, k, pid)
		switch {
		case err == nil:
			r.log.Info("a session was adopted", "job", k.JobId, "uid", uid, "pid", pid)
			return fmt.Sprintf("adopted %d", k.JobId)
		case errors.Is(err, step.ErrSuspended):
			suspended = cmp.Or(suspended, k.JobId)
		case !errors.Is(err, step.ErrEnding):
			r.log.Error("a session was not adopted", "job", k.JobId, "uid", uid, "pid", pid, "err", err)
			return "failed " + strings.ReplaceAll(err.Error(), "\n", "; ")
		}
	}
	if suspended != 0 {
		return fmt.Sprintf("suspended %d", suspended)
	}
	return "none"
}

// parentOf is the process that has started another one.
func parentOf(pid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name, in parentheses, may hold anything: count from the last one.
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(f) < 2 {
		return 0, fmt.Errorf("/proc/%d/stat cannot be read", pid)
	}
	parent, err := strconv.Atoi(f[1])
	if err != nil || parent <= 1 || parent == os.Getpid() {
		return 0, fmt.Errorf("process %d was started by no session (its parent is %s)", pid, f[1])
	}
	return parent, nil
}

// allocationsOf are those of a user that are here and have not ended, in the order in which they are tried.
func (r *Root) allocationsOf(uid uint32, procCgroup string) []*pb.StepKey {
	type candidate struct {
		key   *pb.StepKey
		in    bool
		start int64
	}
	var found []candidate
	r.mu.Lock()
	for key, k := range r.known {
		if !key.Holder() || k.rep == nil || k.rep.Phase == pb.StepPhase_STEP_ENDED || k.refused() || k.brief.GetUid() != uid {
			continue
		}
		found = append(found, candidate{k.key, cgroup.In(procCgroup, r.cgroup(), k.brief.Cgroup), k.rep.StartNs})
	}
	r.mu.Unlock()
	slices.SortFunc(found, func(a, b candidate) int {
		if a.in != b.in {
			if a.in {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(b.start, a.start), cmp.Compare(b.key.JobId, a.key.JobId))
	})
	keys := make([]*pb.StepKey, len(found))
	for i, c := range found {
		keys[i] = c.key
	}
	return keys
}

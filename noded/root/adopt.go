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

// sshd sessions are adopted through a socket that only root can open. `sluice adopt`, which sshd's PAM stack runs as root
// (pam_exec(8)) for an authenticated user, sends one line, the user's uid, and receives one line:
//
//	adopted JOB     the caller's parent process now belongs to that job's allocation
//	none            the user has no job on this node
//	suspended JOB   the user's job is suspended
//	failed WORDS    the process was not adopted, for this reason
//
// The kernel tells which process asks (SO_PEERCRED), no line does. Neither noded-link nor the controller takes part, so logins to
// running jobs do not depend on them.

const (
	adoptPatience = 15 * time.Second // for a whole call
	adoptCalls    = 64               // concurrent calls; others wait
	adoptLine     = 64               // bytes of a request
)

// serveAdopt answers calls until the listener is closed.
func (r *Root) serveAdopt(l *net.UnixListener) {
	turns := make(chan struct{}, adoptCalls)
	for {
		turns <- struct{}{}
		c, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of file descriptors
			r.once("cannot accept a login", err)
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

// adoptCall serves one call of `sluice adopt` and returns the answer.
func (r *Root) adoptCall(ctx context.Context, c *net.UnixConn) string {
	peer, err := peerOf(c)
	if err != nil {
		return "failed " + err.Error()
	}
	if peer.Uid != 0 {
		return "failed only root may request an adoption"
	}
	line, err := bufio.NewReaderSize(c, adoptLine).ReadSlice('\n')
	uid, perr := strconv.ParseUint(strings.TrimSpace(string(line)), 10, 32)
	switch {
	case errors.Is(err, bufio.ErrBufferFull), err == nil && perr != nil:
		return "failed the request is not a user id"
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
		return nil, fmt.Errorf("cannot identify the calling process: %w", err)
	}
	if peer.Pid <= 0 {
		return nil, errors.New("the calling process is in another PID namespace")
	}
	return peer, nil
}

// adopt moves the parent of process asks, which waits for it, into an allocation of the user: the one that it is in already, or
// the newest that accepts it.
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
			r.log.Info("adopted a session", "job", k.JobId, "uid", uid, "pid", pid)
			return fmt.Sprintf("adopted %d", k.JobId)
		case errors.Is(err, step.ErrSuspended):
			suspended = cmp.Or(suspended, k.JobId)
		case !errors.Is(err, step.ErrEnding):
			r.log.Error("cannot adopt a session", "job", k.JobId, "uid", uid, "pid", pid, "err", err)
			return "failed " + strings.ReplaceAll(err.Error(), "\n", "; ")
		}
	}
	if suspended != 0 {
		return fmt.Sprintf("suspended %d", suspended)
	}
	return "none"
}

// parentOf returns the parent of a process.
func parentOf(pid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name, in parentheses, may contain anything, so the fields are counted from the last parenthesis.
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(f) < 2 {
		return 0, fmt.Errorf("/proc/%d/stat cannot be read", pid)
	}
	parent, err := strconv.Atoi(f[1])
	if err != nil || parent <= 1 || parent == os.Getpid() {
		return 0, fmt.Errorf("process %d was not started by a session (its parent is %s)", pid, f[1])
	}
	return parent, nil
}

// allocationsOf returns the user's live allocations on this node, in the order in which to try them.
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

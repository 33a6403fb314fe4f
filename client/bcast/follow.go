package bcast

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/submission"
)

const (
	// launchWithin bounds how long connected nodes wait for the others.
	launchWithin = time.Minute
	// askAfter is when the controller is asked to report the end of the step; grace is how long nodes may take to report it first.
	askAfter = 3 * time.Second
	grace    = 5 * time.Second
)

// Errors of Slurm's without an errno.
const (
	connectionFailure = "Communication connection failure"
	launchTimeout     = "Communication connection failure, timeout waiting for the node"
)

// run waits until every node has the file or has failed.
func (t *transfer) run(ctx context.Context) error {
	go func() { _, _ = t.sum() }()
	defer t.sending.Wait()
	defer t.giveUp()
	ask := time.NewTimer(askAfter)
	defer ask.Stop()
	defer t.launch.Stop()
	over := make(chan *msg.StepRecord, 1)
	asking := false
	inquire := func() {
		if !asking {
			asking = true
			go t.inquire(ctx, over)
		}
	}
	var late <-chan time.Time
	var ended *msg.StepRecord
	for {
		select {
		case <-t.done:
			return t.outcome()
		case s := <-t.Signals:
			if n, ok := ends(s); ok {
				t.cancel()
				return &submission.Interrupted{Signal: n}
			}
		case <-t.launch.C:
			if !t.session.Begun() {
				t.cancel()
				t.failAll(launchTimeout)
			}
		case <-ask.C:
			inquire()
		case <-t.changed:
			inquire()
		case ended = <-over:
			t.failLost(reason(ended))
			late = time.After(grace)
		case <-late:
			t.failAll(reason(ended))
		}
	}
}

// failLost fails the nodes that are disconnected.
func (t *transfer) failLost(text string) {
	for i := range t.nodes {
		t.mu.Lock()
		lost := t.nodes[i].lost
		t.mu.Unlock()
		if lost {
			t.failText(i, syscall.EIO, text)
		}
	}
}

// reason is the controller's reason for the end of a step.
func reason(s *msg.StepRecord) string {
	if s.GetReason() == "" {
		return connectionFailure
	}
	return connectionFailure + ", " + s.GetReason()
}

// inquire waits until the controller reports the end of the step.
func (t *transfer) inquire(ctx context.Context, over chan<- *msg.StepRecord) {
	r, err := submission.Patiently(ctx, t.Sender, func() (*msg.WaitStepReply, error) {
		return t.Client.WaitStep(ctx, &msg.WaitStepRequest{JobId: t.step.GetJobId(), StepId: t.step.GetStepId()})
	})
	if ctx.Err() == nil {
		if err != nil {
			t.Env.Errorf("cannot find out how the copy ended: %v", err)
		}
		over <- r.GetStep()
	}
}

// outcome returns the highest errno of the nodes.
func (t *transfer) outcome() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.errno != 0 {
		return &Failure{t.errno}
	}
	return nil
}

// cancel ends the step with SIGTERM, so that incomplete files are removed.
func (t *transfer) cancel() {
	ctx, done := context.WithTimeout(context.Background(), grace)
	defer done()
	id := fmt.Sprintf("%d.%d", t.step.GetJobId(), t.step.GetStepId())
	if _, err := t.Client.CancelJobs(ctx, &msg.CancelJobsRequest{Ids: []string{id}}); err != nil {
		t.Env.Errorf("cannot end the copy: %v", err)
	}
}

// giveUp aborts running transfers.
func (t *transfer) giveUp() {
	t.session.Close()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for i := range t.nodes {
		t.leave(i)
	}
}

// leave marks a node as done. The lock is held.
func (t *transfer) leave(node int) {
	n := &t.nodes[node]
	if n.over {
		return
	}
	n.over = true
	close(n.gone)
	if t.left--; t.left == 0 {
		close(t.done)
	}
}

// fail reports that a node does not get the file.
func (t *transfer) fail(node int, errno syscall.Errno, more string) {
	text := connectionFailure
	if errno != 0 {
		text = errno.Error()
		text = strings.ToUpper(text[:1]) + text[1:]
	} else {
		errno = syscall.EIO
	}
	if more != "" {
		text += ": " + more
	}
	t.failText(node, errno, text)
}

func (t *transfer) failText(node int, errno syscall.Errno, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.nodes[node].over {
		return
	}
	t.Env.Errorf("REQUEST_FILE_BCAST(%s): %s", t.step.GetNodes()[node].GetNode(), text)
	t.errno = max(t.errno, int(errno))
	t.leave(node)
}

func (t *transfer) failAll(text string) {
	for i := range t.nodes {
		t.failText(i, syscall.EIO, text)
	}
}

// unreadable reports that the file cannot be read to its end.
func (t *transfer) unreadable(err error) {
	t.mu.Lock()
	first := t.errno == 0
	t.errno = max(t.errno, int(syscall.EIO))
	if first {
		t.Env.Errorf("Can't read `%s`: %v", t.file.Path, err)
	}
	for i := range t.nodes {
		t.leave(i)
	}
	t.mu.Unlock()
}

// Connected implements stepio.Watcher, as do the methods below.
func (t *transfer) Connected(int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.began {
		t.began = true
		t.launch.Reset(launchWithin)
	}
}

func (t *transfer) Started(node int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.sending.Add(1)
		go t.send(node)
	}
}

func (t *transfer) Failed(node int, f *msg.StepFailed) {
	t.failText(node, syscall.EIO, "task launch failed: "+f.Detail)
	t.ask()
}

func (t *transfer) Exit(node int, e *msg.StepExit) {
	switch ws := syscall.WaitStatus(e.WaitStatus); {
	case ws.Exited() && ws.ExitStatus() == 0:
		t.mu.Lock()
		t.leave(node)
		t.mu.Unlock()
	case ws.Exited():
		t.fail(node, syscall.Errno(ws.ExitStatus()), explained[syscall.Errno(ws.ExitStatus())])
	case e.Oom:
		t.failText(node, syscall.ENOMEM, "Out Of Memory")
	default:
		t.failText(node, syscall.EINTR, "the copy was ended by signal "+fmt.Sprint(int(ws.Signal())))
	}
}

// explained describes errnos that the system does not use for files.
var explained = map[syscall.Errno]string{
	syscall.EBADMSG:      "the data that arrived differ from the data sent",
	syscall.ECONNABORTED: "the connection ended before the file was complete",
}

func (t *transfer) Closed(uint32, bool) {}

func (t *transfer) Abort(uint32) {}

func (t *transfer) Say(_ int, line string) {
	if t.Verbose {
		t.Env.Infof("%s", line)
	}
}

func (t *transfer) Ended(node int, e *msg.StepEnded) {
	t.fail(node, 0, e.Detail)
}

func (t *transfer) Lost(node int, _ error) {
	t.mu.Lock()
	t.nodes[node].lost = true
	t.mu.Unlock()
	t.ask()
}

func (t *transfer) Unwritable(error) {}

// ask makes run ask the controller how the step ended.
func (t *transfer) ask() {
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

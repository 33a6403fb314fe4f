package stepd

import (
	"os"
	"strings"
	"sync"
	"time"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// sayFor is how long to wait for a line: even a regular file can hang, and a signal often follows the line.
const sayFor = 200 * time.Millisecond

// maxUnsaid bounds the lines that wait for a file system that hangs; further lines are lost.
const maxUnsaid = 16

// teller writes lines into a job's stderr, in order, and finally closes the file. Only a goroutine that nothing depends on
// touches the file, because the file system may hang (NFS, FUSE, a frozen one). Then the lines arrive late or never, and only the
// first of them is waited for. A nil teller does nothing.
type teller struct {
	file words

	mu      sync.Mutex
	unsaid  []string
	written chan struct{} // closed when all lines are written; nil: nobody is writing
	hangs   bool          // the file system has not answered in time, nor since
	closing bool
	closed  chan struct{}
}

// words is the destination of a teller: the job's stderr, or the connection to srun.
type words interface {
	WriteString(string) (int, error)
	Close() error
}

// newTeller takes a regular file, so that a write cannot wait for a reader; nil: none.
func newTeller(file *os.File) *teller {
	if file == nil {
		return nil
	}
	return &teller{file: file, closed: make(chan struct{})}
}

// say writes a line as Slurm's slurmstepd does, which people and tools look for.
func (t *teller) say(line string) {
	t.write("slurmstepd: error: " + line)
}

// write writes a line unchanged.
func (t *teller) write(line string) {
	if t == nil || line == "" {
		return
	}
	t.mu.Lock()
	if t.closing || len(t.unsaid) >= maxUnsaid {
		t.mu.Unlock()
		return
	}
	t.unsaid = append(t.unsaid, line+"\n")
	if t.written == nil {
		t.written = make(chan struct{})
		go t.writeAll()
	}
	written, hangs := t.written, t.hangs
	t.mu.Unlock()
	if !hangs && !doneWithin(written, sayFor) {
		t.mu.Lock()
		t.hangs = t.written == written
		t.mu.Unlock()
	}
}

func (t *teller) writeAll() {
	for {
		t.mu.Lock()
		if len(t.unsaid) == 0 {
			close(t.written)
			t.written, t.hangs = nil, false
			closing := t.closing
			t.mu.Unlock()
			if closing {
				t.shut()
			}
			return
		}
		line := t.unsaid[0]
		t.unsaid = t.unsaid[1:]
		t.mu.Unlock()
		_, _ = t.file.WriteString(line)
	}
}

// close closes the file when all lines are written. False: that takes its time.
func (t *teller) close() bool {
	if t == nil {
		return true
	}
	t.mu.Lock()
	t.closing = true
	writing := t.written != nil
	t.mu.Unlock()
	if !writing {
		go t.shut()
	}
	return doneWithin(t.closed, settleFor)
}

func (t *teller) shut() {
	_ = t.file.Close()
	close(t.closed)
}

// settleFor is how long to wait for something that takes microseconds, before this shim is not used again.
const settleFor = 50 * time.Millisecond

// doneWithin waits for done, and reports whether it was closed in time.
func doneWithin(done <-chan struct{}, limit time.Duration) bool {
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case <-done:
		return true
	case <-late.C:
		return false
	}
}

// complain writes a line like say, from the job's own process.
func complain(stderr *os.File, line string) {
	_, _ = stderr.WriteString("slurmstepd: error: " + line + "\n")
}

// farewell returns Slurm's line about a job that was stopped.
func farewell(b *pb.Bundle, reason string, now time.Time) string {
	why := map[string]string{
		pb.StopTimeout:  " DUE TO TIME LIMIT",
		pb.StopPreempt:  " DUE TO PREEMPTION",
		pb.StopRequeue:  " DUE TO JOB REQUEUE",
		pb.StopNodeFail: " DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS",
	}[reason]
	what := "JOB " + number(b.Key.GetJobId())
	if b.Key.GetStep() != pb.BatchStep {
		what = "STEP " + stepID(b.Key)
	}
	return "*** " + what + " ON " + nodeName(b.Env) + " CANCELLED AT " + now.Format("2006-01-02T15:04:05") + why + " ***"
}

func nodeName(env []string) string {
	for _, kv := range env {
		if n, ok := strings.CutPrefix(kv, "SLURMD_NODENAME="); ok {
			return n
		}
	}
	n, _ := os.Hostname()
	return n
}

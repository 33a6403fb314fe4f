package crashtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/internal/test/daemontest"
)

// ledger is what the submitters know: for each submission, whether it was acknowledged, and as which job.
type ledger struct {
	c *cluster

	mu      sync.Mutex
	rng     *mathrand.Rand // beside the cluster's, which the test uses meanwhile
	entries []*entry
	tries   int // answers that did not come
}

type entry struct {
	name    string // of the witness file
	code    int
	secs    string
	job     uint32 // 0: not acknowledged
	refused error
}

func newLedger(c *cluster) *ledger { return &ledger{c: c, rng: newRand(c.t.Name() + " ledger")} }

// durations are how long test jobs run, in seconds: most do not at all.
var durations = []string{"0", "0", "0", "0", "0.02", "0.1", "0.3"}

// next makes the next submission. Exit codes other than 0 show that the controller does not make ends up.
func (l *ledger) next() *entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := &entry{name: fmt.Sprint("w", len(l.entries)), code: l.rng.IntN(4) * 7, secs: durations[l.rng.IntN(len(durations))]}
	l.entries = append(l.entries, e)
	return e
}

func (l *ledger) args(e *entry) []string {
	return []string{l.c.witness(e.name), strconv.Itoa(e.code), e.secs}
}

func (l *ledger) acknowledged(e *entry, job uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.job = job
}

func (l *ledger) unanswered() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tries++
}

// request is a submission through the API, as sbatch makes it.
func request(c *cluster, script string, args ...string) *msg.SubmitRequest {
	return &msg.SubmitRequest{RequestId: requestID(), Script: []byte(script), Env: []string{"PATH=/usr/bin:/bin"},
		Spec: &msg.JobSpec{Name: "crash", WorkDir: "/", StdOut: "/dev/null", Args: args, Command: "crash.sh", Umask: 0o22}}
}

func requestID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// submit submits and expects to be obeyed.
func (c *cluster) submit(script string, change func(*msg.JobSpec), args ...string) uint32 {
	c.t.Helper()
	cl := c.dial()
	defer cl.Close()
	req := request(c, script, args...)
	if change != nil {
		change(req.Spec)
	}
	r, err := cl.SubmitJob(context.Background(), req)
	if err != nil {
		c.t.Fatalf("cannot submit: %s", client.Text(err))
	}
	return r.JobId
}

// A submitter takes a ticket, submits one job, and so on until there are no more tickets.
type submitter func(ctx context.Context, l *ledger, tickets <-chan struct{})

// persistent keeps one connection, and sends a request again with the same id until it is answered.
func persistent(ctx context.Context, l *ledger, tickets <-chan struct{}) {
	overAPI(ctx, l, tickets, true)
}

// careless keeps one connection, and gives up a request whose answer does not come.
func careless(ctx context.Context, l *ledger, tickets <-chan struct{}) {
	overAPI(ctx, l, tickets, false)
}

func overAPI(ctx context.Context, l *ledger, tickets <-chan struct{}, again bool) {
	var cl *client.Client
	defer func() {
		if cl != nil {
			cl.Close()
		}
	}()
	for range tickets {
		e := l.next()
		req := request(l.c, plainJob, l.args(e)...)
		for {
			var reply *msg.SubmitReply
			var err error
			if cl == nil {
				cl, err = l.connect(ctx)
			}
			if err == nil {
				reply, err = cl.SubmitJob(ctx, req)
			}
			if err == nil {
				l.acknowledged(e, reply.JobId)
				break
			}
			l.unanswered()
			if ctx.Err() != nil || client.ProblemOf(err) != nil {
				e.refused = err
				return
			}
			if cl != nil {
				cl.Close()
				cl = nil
			}
			if !again {
				e.refused = err
				break
			}
		}
	}
}

// connect waits for a controller.
func (l *ledger) connect(ctx context.Context) (*client.Client, error) {
	for {
		cl, err := client.Dial(ctx, l.c.sock)
		if err == nil || ctx.Err() != nil {
			return cl, err
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// viaSbatch runs a real sbatch for each job.
func viaSbatch(ctx context.Context, l *ledger, tickets <-chan struct{}) {
	script := filepath.Join(l.c.dir, "job.sh")

	must(l.c.t, writeOnce(script, plainJob))
	for range tickets {
		if cl, err := l.connect(ctx); err == nil { // while there is no controller sbatch fails at once, which shows nothing
			cl.Close()
		}
		e := l.next()
		cmd := exec.CommandContext(ctx, filepath.Join(bin, "sbatch"), append([]string{"--parsable", "-o", "/dev/null", script},
			l.args(e)...)...)
		cmd.Env, cmd.Dir = l.c.clientEnv(), "/"
		var stdout, stderr strings.Builder
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		id, perr := strconv.ParseUint(strings.TrimSpace(stdout.String()), 10, 32)
		switch {
		case err == nil && perr == nil:
			l.acknowledged(e, uint32(id))
		case err == nil:
			l.c.t.Errorf("sbatch succeeds and says %q", stdout.String())
		default:
			e.refused = fmt.Errorf("%w: %s", err, stderr.String())
			l.unanswered()
		}
	}
}

func (c *cluster) clientEnv() []string {
	return []string{"PATH=/usr/bin:/bin", "SLURM_CONF=" + c.conf, "SLUICE_SOCKET=" + c.sock}
}

func writeOnce(path, text string) error {
	tmp := path + "." + requestID()[:8]
	if err := os.WriteFile(tmp, []byte(text), 0o755); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// crowd starts submitters. give hands out tickets; done waits until they have been used up.
func (l *ledger) crowd(kinds ...submitter) (give func(n int), done func()) {
	tickets := make(chan struct{}, 4096)
	ctx, cancel := context.WithCancel(context.Background())
	l.c.t.Cleanup(cancel)
	var wg sync.WaitGroup
	for _, k := range kinds {
		wg.Go(func() { k(ctx, l, tickets) })
	}
	give = func(n int) {
		for range n {
			select {
			case tickets <- struct{}{}:
			default:
			}
		}
	}
	return give, func() {
		close(tickets)
		late := time.AfterFunc(2*patience, cancel)
		wg.Wait()
		if !late.Stop() {
			l.c.t.Errorf("submitters do not come to an end in %v", 2*patience)
		}
		cancel()
	}
}

// drained waits until no job is active; as long as jobs end it goes on waiting.
func (c *cluster) drained() map[uint32]*msg.JobRecord {
	c.t.Helper()
	var all map[uint32]*msg.JobRecord
	left, since := -1, time.Now()
	daemontest.Poll(time.Hour, func() bool {
		all = c.jobs()
		active := 0
		for _, j := range all {
			if isActive(j) {
				active++
			}
		}
		if active != left {
			left, since = active, time.Now()
		}
		return active == 0 || time.Since(since) > patience
	})
	if left > 0 {
		for _, j := range all {
			if isActive(j) {
				c.t.Errorf("job %d does not end: %v, reason %s %q, nodes %s, attempt %d", j.Id, j.State, j.Reason, j.ReasonDetail,
					j.NodeList, j.Attempt)
			}
		}
		c.t.Fatalf("%d of %d jobs do not end\n%s", left, len(all), c.stands())
	}
	return all
}

func isActive(j *msg.JobRecord) bool {
	return !j.State.Terminal() || j.StateFlags&msg.JobCompleting != 0
}

// check compares the three accounts of what has happened: the submitters', the witnesses' and the controller's.
func (l *ledger) check() {
	c, t := l.c, l.c.t
	t.Helper()
	c.await("the controller answers", c.ping)
	all := c.drained()
	owners := map[uint32]string{}
	acked, ran := 0, 0
	for _, e := range l.entries {
		seen, err := readWitness(c.witness(e.name))
		if err != nil {
			t.Errorf("%s: %v", e.name, err)
			continue
		}
		job := e.job
		if job == 0 && len(seen) > 0 {
			job = seen[0].job
		}
		if e.job != 0 {
			acked++
		}
		if job == 0 {
			continue // neither acknowledged nor run; if the controller has it, it is found below
		}
		if other, taken := owners[job]; taken {
			t.Errorf("%s and %s are both job %d", e.name, other, job)
		}
		owners[job] = e.name
		if err := ranOnce(seen); err != nil {
			j := all[job]
			t.Errorf("%s, job %d, acknowledged %v: %v; the controller says %v, status %#x, attempt %d, %q, on %s", e.name, job, e.job != 0,
				err,
				j.GetState(), j.GetExitStatus(), j.GetAttempt(), j.GetReasonDetail(), j.GetNodeList())
			continue
		}
		ran++
		if seen[0].job != job {
			t.Errorf("%s was acknowledged as job %d and ran as job %d", e.name, job, seen[0].job)
		}
		checkRecord(t, e, all[job])
	}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		if _, known := owners[id]; !known && all[id].Spec.Name == "crash" {
			t.Errorf("job %d is in the controller's books as %v, and nobody has seen it run", id, all[id].State)
		}
	}
	c.accounted(all)
	c.settled()
	c.nodesUp()
	t.Logf("%d submissions, %d acknowledged, %d ran exactly once, %d calls without an answer", len(l.entries), acked, ran, l.tries)
	if acked == 0 {
		t.Error("nothing was acknowledged: this test has shown nothing")
	}
}

func checkRecord(t *testing.T, e *entry, j *msg.JobRecord) {
	t.Helper()
	want := msg.JobState_JOB_COMPLETED
	if e.code != 0 {
		want = msg.JobState_JOB_FAILED
	}
	switch {
	case j == nil:
		t.Errorf("%s, job %d: the controller does not know it", e.name, e.job)
	case j.State != want || j.ExitStatus != uint32(e.code)<<8 || j.Attempt != 1 || j.Restarts != 0:
		t.Errorf("%s, job %d: the controller says %v, exit status %#x, attempt %d, %d restarts, %q; it exited with %d", e.name, j.Id,
			j.State, j.ExitStatus, j.Attempt, j.Restarts, j.ReasonDetail, e.code)
	}
}

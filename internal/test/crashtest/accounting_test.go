package crashtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/sluice-hpc/sluice/client/msg"
)

// accounting is what sacct shows: every attempt there ever was.
func (c *cluster) accounting() (list []*msg.JobRecord, warning string) {
	c.t.Helper()
	cl := c.dial()
	defer cl.Close()
	stream, err := cl.Accounting(context.Background(), &msg.AccountingRequest{SinceNs: 1, UntilNs: 1 << 62, Duplicates: true})
	must(c.t, err)
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return list, warning
		}
		must(c.t, err)
		list, warning = append(list, r.Jobs...), r.GetWarning()
	}
}

// attempt names an attempt of a job.
type attempt struct{ job, restarts uint32 }

// accounted compares accounting with the controller's books: every job is there, each attempt once, as it ended.
func (c *cluster) accounted(all map[uint32]*msg.JobRecord) {
	c.t.Helper()
	seen := map[attempt]*msg.JobRecord{}
	list, warning := c.accounting()
	if warning != "" {
		c.t.Errorf("accounting warns: %s", warning)
	}
	for _, j := range list {
		at := attempt{j.GetId(), j.GetRestarts()}
		if seen[at] != nil {
			c.t.Errorf("accounting has job %d, attempt %d, twice", at.job, at.restarts)
		}
		seen[at] = j
	}
	for id, j := range all {
		if j.GetEligibleNs() == 0 {
			continue // shown by id alone
		}
		for r := range j.GetRestarts() + 1 {
			got := seen[attempt{id, r}]
			switch {
			case got == nil:
				c.t.Errorf("accounting does not have job %d, attempt %d", id, r)
			case r < j.GetRestarts() && got.GetStateFlags()&msg.JobRequeued == 0:
				c.t.Errorf("accounting has attempt %d of job %d as %v, it was requeued", r, id, got.GetState())
			case r == j.GetRestarts() && (got.GetState() != j.GetState() || got.GetExitStatus() != j.GetExitStatus() ||
				got.GetEndNs() != j.GetEndNs()):
				c.t.Errorf("accounting has job %d as %v with status %#x, it is %v with %#x", id, got.GetState(), got.GetExitStatus(),
					j.GetState(), j.GetExitStatus())
			}
		}
	}
}

// stored ends the controller in peace and reads its database: what sacct showed of the state must be in there, too.
func (c *cluster) stored(all map[uint32]*msg.JobRecord) {
	c.t.Helper()
	c.ctld.signal(syscall.SIGTERM)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(c.state, "acct.db")+"?_pragma=query_only(1)")
	must(c.t, err)
	defer db.Close()
	rows, err := db.Query("SELECT key >> 24 & 0xffffffff, key & 16777215, state FROM jobs")
	must(c.t, err)
	defer rows.Close()
	have := map[attempt]msg.JobState{}
	for rows.Next() {
		var at attempt
		var s msg.JobState
		must(c.t, rows.Scan(&at.job, &at.restarts, &s))
		have[at] = s
	}
	must(c.t, rows.Err())
	for id, j := range all {
		for r := range j.GetRestarts() + 1 {
			if s, ok := have[attempt{id, r}]; !ok || r == j.GetRestarts() && s != j.GetState() {
				c.t.Errorf("the database has job %d, attempt %d: %v, as %v; it is %v", id, r, ok, s, j.GetState())
			}
		}
	}
	c.startCtld()
}

// requeued starts a job and requeues it, and returns when it waits again.
func (c *cluster) requeued(name string) uint32 {
	c.t.Helper()
	w := c.witness(name)
	id := c.submit(gatedJob, func(s *msg.JobSpec) { s.Name, s.Requeue = "requeued", msg.Yes }, w, "0")
	c.started(w)
	cl := c.dial()
	defer cl.Close()
	_, err := cl.ControlJobs(context.Background(), &msg.ControlJobsRequest{Verb: "requeue", Ids: []string{fmt.Sprint(id)}})
	must(c.t, err)
	c.await("the job waits again", func() bool {
		j := c.jobs(id)[id]
		return j.GetRestarts() == 1 && j.GetState() == msg.JobState_JOB_PENDING
	})
	return id
}

// TestFailpointsOfAccounting ends the controller before and after jobs are stored, and after they have left the outbox: an attempt that
// was requeued is in the journal's outbox alone until then.
func TestFailpointsOfAccounting(t *testing.T) {
	c := newCluster(t, 1)
	c.start()
	l := newLedger(c)
	var again []uint32
	for _, point := range []string{"acct.before", "acct.after", "acct.taken"} {
		for _, n := range []int{1, 2} {
			again = append(again, c.requeued(fmt.Sprintf("%s%d", point, n)))
			c.ctld.kill()
			if point == "acct.taken" {
				n = 1 // the outbox is emptied once
			}
			d := c.launchCtld(fmt.Sprintf("SLUICE_FAILPOINT=%s:%d", point, n))
			give, done := l.crowd(persistent, viaSbatch)
			give(6)
			c.died(d, fmt.Sprintf("%s:%d", point, n))
			c.startCtld()
			done()
		}
		fmt.Printf("%s: %s\n", t.Name(), point)
	}
	for _, id := range again {
		c.cancel(id)
	}
	l.check()
	all := c.jobs()
	for _, id := range again {
		if all[id].GetRestarts() != 1 {
			t.Errorf("job %d has %d restarts", id, all[id].GetRestarts())
		}
	}
	c.stored(all)
}

// TestDamagedAccounting: a database that is no more is moved aside, said, and has everything again that the controller holds.
func TestDamagedAccounting(t *testing.T) {
	c := newCluster(t, 1)
	c.start()
	l := newLedger(c)
	give, done := l.crowd(persistent)
	give(10)
	done()
	l.check()
	all := c.jobs()
	path := filepath.Join(c.state, "acct.db")
	for i, damage := range []func() error{
		func() error { return os.WriteFile(path, []byte(strings.Repeat("this is no database\n", 2000)), 0o600) },
		func() error { return os.Truncate(path, 8192) },
		func() error { overwrite(t, path, 4096, make([]byte, 16384)); return nil },
		func() error { return os.Remove(path) },
	} {
		c.ctld.kill()
		_ = os.Remove(path + "-wal") // else SQLite repairs the file from it
		must(t, damage())
		c.startCtld()
		c.accounted(all)
		c.stored(all)
		aside, err := filepath.Glob(path + ".bad-*")
		must(t, err)
		if want := min(i+1, 3); len(aside) < want {
			t.Errorf("damage %d: %d files were moved aside\n%s", i, len(aside), c.ctld.Tail(20))
		}
	}
}

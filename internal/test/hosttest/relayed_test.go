package hosttest_test

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/internal/test/hosttest"
)

// TestSubmitThroughRelayOnce: users on a login host submit all the time while the controller and the login host's daemon are killed and
// started again in turns. Each sbatch succeeds, says the id of its job, and has made exactly one.
func TestSubmitThroughRelayOnce(t *testing.T) {
	t.Parallel()
	const users, each, kills = 3, 8, 4
	c := newCluster(t, 1)
	// Nobody gives up because this machine is slow.
	for _, h := range []*hosttest.Host{c.ctl, c.login} {
		h.WriteEtc("slurm/slurm.conf", c.text(never)+"MessageTimeout=3600\n")
	}
	c.ok(c.ctl.Run("", nil, "scontrol", "reconfigure"))
	startLogin := func() {
		if d := c.noded["login"]; d != nil {
			c.old = append(c.old, d)
		}
		c.noded["login"] = c.login.Start("noded", filepath.Join(bin, "sluice-noded"), "--login")
	}
	startLogin()
	c.await("the login host serves commands", func() bool { return c.login.Run("alice", nil, "squeue").Code == 0 })

	var begun atomic.Int32
	var wg sync.WaitGroup
	said := make([]map[string]string, users) // by the name of the job
	for u := range said {
		said[u] = map[string]string{}
		user := []string{"alice", "bob"}[u%2]
		wg.Go(func() {
			for i := range each {
				name := fmt.Sprintf("u%d.%d", u, i)
				begun.Add(1)
				r := c.login.Run(user, nil, "sbatch", "--parsable", "-H", "-J", name, "-D", "/", "-o", "/dev/null", "--wrap", "true")
				if r.Code != 0 {
					t.Errorf("sbatch of %s: %v", name, r)
					continue
				}
				said[u][name] = strings.TrimSpace(r.Out)
			}
		})
	}
	for k := range kills {
		c.await("the next ones are submitted", func() bool { return int(begun.Load()) > (k+1)*users*each/(kills+1) })
		if k%2 == 0 {
			c.ctld.Signal(syscall.SIGKILL)
			c.ctld.Wait(hosttest.Patience)
			c.old = append(c.old, c.ctld)
			c.startCtld()
		} else {
			c.noded["login"].Signal(syscall.SIGKILL)
			c.noded["login"].Wait(hosttest.Patience)
			startLogin()
		}
	}
	wg.Wait()

	jobs := map[string][]string{}
	cl := c.dial()
	defer cl.Close()
	stream, err := cl.Jobs(context.Background(), &msg.JobsRequest{})
	must(t, err)
	for {
		r, err := stream.Recv()
		if err == io.EOF {
			break
		}
		must(t, err)
		for _, j := range r.Jobs {
			jobs[j.Spec.Name] = append(jobs[j.Spec.Name], strconv.Itoa(int(j.Id)))
		}
	}
	n := 0
	for _, s := range said {
		for name, id := range s {
			n++
			if got := jobs[name]; len(got) != 1 || got[0] != id {
				t.Errorf("sbatch has said %s of %s, and there are the jobs %v", id, name, got)
			}
		}
	}
	if n != users*each || len(jobs) != n {
		t.Errorf("%d of %d submissions were acknowledged, and there are %d jobs", n, users*each, len(jobs))
	}
}

package hosttest_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/internal/mtls"
	"github.com/sluice-hpc/sluice/internal/test/hosttest"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// gatedStep is a batch script whose step has a task on each of its nodes. $1 is what the names of its files begin with: .up.RANK is there
// when a task runs, .go has them end with the exit codes 3, 4, …, and .says is what srun has printed, its exit code last. $2 is where srun
// is.
const gatedStep = `#!/bin/sh
$2/srun sh -c '>$0.up.$SLURM_PROCID; until [ -e $0.go ]; do sleep 0.05; done; echo task $SLURM_PROCID ends; exit $((SLURM_PROCID+3))' \
  $1 >$1.out 2>$1.err
code=$?
{ sort $1.out; echo $code; } >$1.new
mv $1.new $1.says
`

// step submits it by alice, and waits until its tasks run.
func (c *cluster) step(name string, tasks int, args ...string) (job uint32, path string) {
	c.t.Helper()
	script := filepath.Join(c.dir, "step.sh")
	must(c.t, os.WriteFile(script, []byte(gatedStep), 0o755))
	path = filepath.Join(c.dir, name)
	job = c.submit(append(args, "-n", fmt.Sprint(tasks), script, path, bin)...)
	for i := range tasks {
		c.await(fmt.Sprintf("task %d of job %d", i, job), func() bool {
			if exists(path + ".says") {
				text, _ := os.ReadFile(path + ".err")
				c.t.Fatalf("srun has ended: %s", text)
			}
			return exists(fmt.Sprintf("%s.up.%d", path, i))
		})
	}
	return job, path
}

// keysOn are the keys of what runs on a host.
func (c *cluster) keysOn(h *hosttest.Host) (keys []*pb.StepKey) {
	c.t.Helper()
	found, err := filepath.Glob(h.Path("/var/spool/sluiced/steps/[0-9]*/bundle.pb"))
	must(c.t, err)
	for _, f := range found {
		raw, err := os.ReadFile(f)
		must(c.t, err)
		var b pb.Bundle
		must(c.t, proto.Unmarshal(raw, &b))
		keys = append(keys, b.Key)
	}
	return keys
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

// ends lets the step end, and waits for what srun has said of it.
func (c *cluster) ends(job uint32, path, want string) {
	c.t.Helper()
	must(c.t, os.WriteFile(path+".go", nil, 0o644))
	if j := c.wait(job); j.State != msg.JobState_JOB_COMPLETED {
		c.t.Errorf("job %d is %v: %s", job, j.State, j.ReasonDetail)
	}
	if says, err := os.ReadFile(path + ".says"); err != nil || string(says) != want {
		c.t.Errorf("srun of job %d has said %q (%v), want %q", job, says, err, want)
	}
}

// TestStepsOverHosts: srun in a batch script runs tasks on the script's host and on another one, with no other way to the controller than
// the node daemon of the script's host. That daemon is killed, and the step goes on. Then it is not the daemon that speaks for that host:
// what it says of a step on the other one changes nothing.
func TestStepsOverHosts(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	kill := func(h *hosttest.Host) {
		d := c.noded[h.Name]
		d.Signal(syscall.SIGKILL)
		d.Wait(hosttest.Patience)
	}
	job, path := c.step("two", 2, "-N2")
	kill(c.compute[0])
	c.startNoded(c.compute[0])
	c.linked(2)
	c.ends(job, path, "task 0 ends\ntask 1 ends\n4\n")

	job, path = c.step("one", 1, "-w", "c2")
	kill(c.compute[0])
	node := c.liar(c.compute[0], mtls.RoleNode)
	stream, err := nodepb.NewNodeAPIClient(node.nodes).Sync(context.Background())
	must(t, err)
	must(t, stream.Send(&pb.NodeReport{Hello: &pb.NodeHello{Node: "c1", BootId: "b", NowNs: time.Now().UnixNano()}}))
	_, err = stream.Recv() // it is taken for c1
	must(t, err)
	keys := c.keysOn(c.compute[1])
	if len(keys) != 2 { // the allocation with its script, and the step
		t.Fatalf("c2 has %v", keys)
	}
	for _, key := range keys {
		for _, epoch := range []uint64{key.Epoch, 0} {
			for _, verdict := range []string{"exited", "lost", "node_failed"} {
				key := &pb.StepKey{JobId: key.JobId, Attempt: key.Attempt, Step: key.Step, Epoch: epoch}
				must(t, stream.Send(&pb.NodeReport{Steps: []*pb.StepReport{{Key: key, Phase: pb.StepPhase_STEP_ENDED,
					Exit: &pb.ExitRecord{Key: key, Verdict: verdict, WaitStatus: 9 << 8}}}}))
			}
		}
	}
	must(t, stream.CloseSend())
	for err == nil { // all of it has been read when the controller ends the stream
		_, err = stream.Recv()
	}
	c.startNoded(c.compute[0])
	c.linked(2)
	c.ends(job, path, "task 0 ends\n3\n")
}

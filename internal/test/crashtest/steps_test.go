package crashtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/ttrpc"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/internal/test/daemontest"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// stepScript is what the tasks of these steps execute. $1 is the path that the files of the tasks begin with: .PID.RANK says which process
// a task is, and it ends when there is .go.RANK, with the exit code in it.
const stepScript = `#!/bin/sh
trap '' PIPE
echo $$ >$1.new.$SLURM_PROCID
mv $1.new.$SLURM_PROCID $1.pid.$SLURM_PROCID
until [ -e $1.go.$SLURM_PROCID ]; do sleep 0.05; done
read code <$1.go.$SLURM_PROCID
echo task $SLURM_PROCID ends
exit $code
`

// stepFault is a step of two tasks on two nodes, at a stage of whose life something is killed.
type stepFault struct {
	*cluster
	u      *user
	job    uint32
	before map[uint32]bool // steps that there were before
	id     uint32
	path   string
	at     string // the node where something is killed: its task has not ended
	srun   *daemontest.Daemon
	frozen []int
}

// stages are those of a step's life, each with what brings it about.
var stages = []struct {
	name  string
	reach func(f *stepFault)
}{
	{"created", func(f *stepFault) { // and no node has heard of it
		f.freezeNodes()
		f.begin()
	}},
	{"launching", func(f *stepFault) { // the nodes have, and srun has not said what to execute
		f.freezeNodes()
		f.begin()
		f.freeze(f.srun.Cmd.Process.Pid)
		f.thawNodes()
		f.await("the shims of the step", func() bool { return f.shimOf("n1") != 0 && f.shimOf("n2") != 0 })
	}},
	{"running", func(f *stepFault) {
		f.begin()
		f.tasks()
	}},
	{"ending", func(f *stepFault) { // one of the tasks has ended
		f.begin()
		f.tasks()
		f.at = "n2"
		f.end(0, 3)
		f.await("srun tells of the end of a task", func() bool { return f.srun.Said("task 0: Exited with exit code 3") })
	}},
	{"ended", func(f *stepFault) { // and neither srun nor the controller has been told
		f.begin()
		f.tasks()
		f.freeze(f.srun.Cmd.Process.Pid)
		f.freezeNodes()
		f.end(0, 3)
		f.end(1, 7)
		f.await("the exit records", func() bool {
			found, _ := filepath.Glob(filepath.Join(f.spool("*"), "steps", fmt.Sprintf("%d.1.%d", f.job, f.id), "exit.pb"))
			return len(found) == 2
		})
	}},
}

// victims are what is killed.
var victims = []struct {
	name string
	kill func(f *stepFault)
	// lost: nobody can tell any more how the step would have ended, and it ends with that, unless it had ended.
	lost bool
}{
	{"ctld", func(f *stepFault) {
		f.ctld.kill()
		f.startCtld()
	}, false},
	{"noded", func(f *stepFault) {
		f.noded[f.at].kill()
		f.startNoded(f.at)
	}, false},
	{"link", func(f *stepFault) { f.noded[f.at].killLink() }, false},
	{"shim", func(f *stepFault) {
		if pid := f.shimOf(f.at); pid != 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}, true},
	{"srun", func(f *stepFault) {
		_ = f.srun.Cmd.Process.Kill()
		<-f.srun.Done
	}, true},
	{"all", func(f *stepFault) {
		f.ctld.kill()
		for _, n := range f.nodes {
			f.noded[n].kill()
		}
		f.startCtld()
		for _, n := range f.nodes {
			f.startNoded(n)
		}
	}, false},
}

// TestStepFaults kills each of those who have a part in a step, at each stage of its life. The step ends, with a true exit status, nothing
// of it is left, and the allocation serves the next one.
func TestStepFaults(t *testing.T) {
	c := newCluster(t, 2)
	c.start()
	u := newUser(c, "user")
	u.file("step.sh", stepScript, 0o755)
	job := c.allocation(u)
	for _, s := range stages {
		for _, v := range victims {
			t.Run(s.name+" "+v.name, func(t *testing.T) {
				whole, c := c, c.in(t)
				defer func() { whole.ctld = c.ctld }() // a later one
				f := &stepFault{cluster: c, u: &user{c, u.uid, u.home}, job: job, at: "n1", before: map[uint32]bool{}}
				f.path = filepath.Join(u.home, s.name+"."+v.name)
				for _, step := range c.stepsOf(job) {
					f.before[step.StepId] = true
				}
				defer f.thaw()
				s.reach(f)
				v.kill(f)
				f.thaw()
				f.over(s.name, v.name, v.lost && s.name != "ended" && !(v.name == "shim" && s.name == "created"))
			})
			if t.Failed() {
				break
			}
		}
	}
	c.cancel(job)
	c.wait(job)
	c.settled()
	c.nodesUp()
}

// TestNodeLoss takes a node from a step: all that runs there ends by kill -9, and the node is down. Without --no-kill the step ends with
// it, and so does the job, in Slurm's words; with it each goes on with what is left.
func TestNodeLoss(t *testing.T) {
	c := newCluster(t, 2)
	c.start()
	u := newUser(c, "user")
	u.file("step.sh", stepScript, 0o755)
	kept, ended := c.allocation(u, "--no-kill"), c.allocation(u)
	begin := func(name string, job uint32, options ...string) *stepFault {
		f := &stepFault{cluster: c, u: u, job: job, before: map[uint32]bool{}, path: filepath.Join(u.home, name)}
		for _, step := range c.stepsOf(job) {
			f.before[step.StepId] = true
		}
		f.begin(append(options, "--overlap")...)
		f.tasks()
		return f
	}
	const failure, why = "srun: error: Node failure on n2\n", "DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***"
	goes, stops := begin("goes", kept, "--no-kill", "-K"), begin("stops", kept)
	inJob := begin("injob", ended, "--no-kill")
	batch := u.sbatch(gatedJob, []string{"-N2", "-n2", "-k", "-o", "/dev/null"}, c.witness("batch"), "3")
	c.await("the batch job runs", func() bool { return c.jobs(batch)[batch].State == msg.JobState_JOB_RUNNING })
	if at := c.jobs(batch)[batch].BatchHost; at != "n1" {
		t.Fatalf("the batch script is on %s", at)
	}
	c.started(c.witness("batch"))

	c.noded["n2"].kill()
	for _, pid := range c.shims("n2") {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	for _, f := range []*stepFault{goes, stops, inJob} {
		_ = syscall.Kill(f.pids()[1], syscall.SIGKILL)
	}
	c.scontrol("update", "nodename=n2", "state=down", "reason=lost")

	for _, f := range []*stepFault{stops, inJob} {
		c.await("srun ends", f.srun.Ended)
		text, code := f.srun.Text(), f.srun.Cmd.ProcessState.ExitCode()
		if code < 128 || strings.Count(text, failure) != 1 || !strings.Contains(text, why) ||
			!strings.Contains(text, "srun: Job step aborted: Waiting up to ") {
			t.Errorf("%s: srun has ended with %d: %s", f.path, code, text)
		}
	}
	if j := c.wait(ended); j.State != msg.JobState_JOB_NODE_FAIL {
		t.Errorf("the job without --no-kill is %v", j.State)
	}
	c.await("the step has ended", func() bool { return stops.step().StateFlags == 0 && stops.step().State == msg.JobState_JOB_NODE_FAIL })
	c.await("srun tells of the node", func() bool { return goes.srun.Said(failure) })
	if s := goes.step(); s.State != msg.JobState_JOB_RUNNING || goes.srun.Ended() {
		t.Errorf("the step with --no-kill is %v: %s", s.State, goes.srun.Text())
	}
	for _, id := range []uint32{kept, batch} {
		if j := c.jobs(id)[id]; j.State != msg.JobState_JOB_RUNNING || j.NodeList != "n1" || j.NumNodes != 1 || j.NumCpus != 1 ||
			!strings.Contains(j.AllocTres, "cpu=1,") || !strings.Contains(j.AllocTres, "node=1,") {
			t.Errorf("job %d is %v on %s, with %d nodes and %d CPUs, %s", id, j.State, j.NodeList, j.NumNodes, j.NumCpus, j.AllocTres)
		}
	}
	out, err := u.command(filepath.Join(bin, "srun"), fmt.Sprint("--jobid=", kept), "--overlap", "-n1", "printenv", "SLURM_STEP_NODELIST",
		"SLURM_STEP_NUM_NODES").CombinedOutput()
	if err != nil || string(out) != "n1\n1\n" {
		t.Errorf("another step: %v: %s", err, out)
	}
	c.ctld.kill() // what is left of a job is on disk
	c.startCtld()
	goes.end(0, 0)
	c.await("srun ends", goes.srun.Ended)
	if code := goes.srun.Cmd.ProcessState.ExitCode(); code != 128+9 || goes.step().ExitStatus != 9 && goes.step().ExitStatus != 0 ||
		!goes.srun.Said("task 0 ends") {
		t.Errorf("srun has ended with %d, the step with %#x: %s", code, goes.step().ExitStatus, goes.srun.Text())
	}
	open(c, c.witness("batch"))
	if j := c.wait(batch); j.State != msg.JobState_JOB_FAILED || j.ExitStatus != 3<<8 || j.Attempt != 1 {
		t.Errorf("the batch job is %v, %#x, attempt %d", j.State, j.ExitStatus, j.Attempt)
	}
	c.startNoded("n2")
	c.cancel(kept)
	c.wait(kept)
	c.settled()
	c.awaitNodes()
	c.nodesUp()
}

// allocation is one that stays, of both nodes.
func (c *cluster) allocation(u *user, options ...string) uint32 {
	c.t.Helper()
	out, err := u.command(filepath.Join(bin, "salloc"), append(options, "--no-shell", "-N2", "-n2")...).CombinedOutput()
	_, text, _ := strings.Cut(string(out), "Granted job allocation ")
	id, perr := strconv.ParseUint(strings.TrimSpace(text), 10, 32)
	if err != nil || perr != nil {
		c.t.Fatalf("salloc: %v: %s", err, out)
	}
	return uint32(id)
}

// stepsOf are all steps of a job.
func (c *cluster) stepsOf(job uint32) (all []*msg.StepRecord) {
	c.t.Helper()
	cl := c.dial()
	defer cl.Close()
	stream, err := cl.Steps(context.Background(), &msg.StepsRequest{Ids: []string{fmt.Sprint(job)}, Ended: true})
	must(c.t, err)
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all
		}
		must(c.t, err)
		all = append(all, r.Steps...)
	}
}

// begin starts srun, and waits for the record of the step.
func (f *stepFault) begin(options ...string) {
	f.t.Helper()
	args := append(options, fmt.Sprint("--jobid=", f.job), "-N2", "-n2", filepath.Join(f.u.home, "step.sh"), f.path)
	cmd := f.u.command(filepath.Join(bin, "srun"), args...)
	f.srun = daemontest.Launch(f.t, f.dir, "srun."+filepath.Base(f.path), *cmd.SysProcAttr, cmd.Env, cmd.Path, cmd.Args[1:]...)
	f.t.Cleanup(func() {
		if !f.srun.Ended() {
			_ = f.srun.Cmd.Process.Kill()
			<-f.srun.Done
		}
	})
	f.await("the step is created", func() bool {
		if f.srun.Ended() {
			f.t.Fatalf("srun has ended: %v: %s", f.srun.Cmd.ProcessState, f.srun.Text())
		}
		for _, s := range f.stepsOf(f.job) {
			if !f.before[s.StepId] {
				f.id = s.StepId
				return true
			}
		}
		return false
	})
}

// step is the record of the step.
func (f *stepFault) step() *msg.StepRecord {
	for _, s := range f.stepsOf(f.job) {
		if s.StepId == f.id {
			return s
		}
	}
	f.t.Fatalf("step %d.%d has gone", f.job, f.id)
	return nil
}

// tasks waits until both run.
func (f *stepFault) tasks() {
	f.t.Helper()
	f.await("the tasks run", func() bool { return len(f.pids()) == 2 })
}

// pids are the processes of the tasks that have begun.
func (f *stepFault) pids() (pids []int) {
	for rank := range 2 {
		text, _ := os.ReadFile(fmt.Sprintf("%s.pid.%d", f.path, rank))
		if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// end has a task end with a code.
func (f *stepFault) end(rank, code int) {
	f.t.Helper()
	must(f.t, writeOnce(fmt.Sprintf("%s.go.%d", f.path, rank), fmt.Sprintln(code)))
}

// groups are the cgroups of the step.
func (f *stepFault) groups() []string {
	return slices.DeleteFunc(f.groupsOfJob(f.job), func(dir string) bool {
		return !strings.Contains(dir, fmt.Sprintf("step_%d", f.id)) || len(daemontest.ProcsIn(dir)) == 0 && !exists(dir)
	})
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// shimOf is the process that serves the step on a node, 0 when there is none: it says so itself.
func (f *stepFault) shimOf(node string) int {
	for _, pid := range f.shims(node) {
		conn, err := net.Dial("unix", filepath.Join(f.spool(node), "shims", fmt.Sprint(pid)))
		if err != nil {
			continue // it is about to end
		}
		client := ttrpc.NewClient(conn)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		r, err := pb.NewStepAPIClient(client).Status(ctx, &pb.StatusRequest{})
		cancel()
		client.Close()
		if k := r.GetKey(); err == nil && k.GetJobId() == f.job && k.GetStep() == f.id {
			return pid
		}
	}
	return 0
}

// freeze stops processes until thaw.
func (f *stepFault) freeze(pids ...int) {
	for _, pid := range pids {
		must(f.t, syscall.Kill(pid, syscall.SIGSTOP))
		f.frozen = append(f.frozen, pid)
	}
}

// freezeNodes stops both halves of the node daemons; the shims go on.
func (f *stepFault) freezeNodes() {
	for _, n := range f.nodes {
		d := f.noded[n]
		f.freeze(d.Cmd.Process.Pid)
		for _, pid := range daemontest.AllProcesses() {
			if parentOf(pid) == d.Cmd.Process.Pid && strings.HasPrefix(daemontest.CommandLine(pid), "sluice-noded link ") {
				f.freeze(pid)
			}
		}
	}
}

func (f *stepFault) thawNodes() {
	srun := f.srun.Cmd.Process.Pid
	stays := slices.Contains(f.frozen, srun)
	f.frozen = slices.DeleteFunc(f.frozen, func(pid int) bool { return pid == srun })
	f.thaw()
	if stays {
		f.frozen = append(f.frozen, srun)
	}
}

func (f *stepFault) thaw() {
	for _, pid := range f.frozen {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
	f.frozen = nil
}

// over waits for the end of the step and looks at how it has ended, and what is left.
func (f *stepFault) over(stage, victim string, lost bool) {
	f.t.Helper()
	if !lost && stage != "ended" {
		f.tasks()
		f.end(0, 3)
		f.end(1, 7)
	}
	f.await("srun ends", f.srun.Ended)
	f.await("the step ends", func() bool { return f.step().State.Terminal() && f.step().StateFlags == 0 })
	s, code := f.step(), f.srun.Cmd.ProcessState.ExitCode()
	switch {
	case lost && victim == "srun":
		if s.State != msg.JobState_JOB_CANCELLED && !(s.State == msg.JobState_JOB_FAILED && stage != "running" && stage != "ending") {
			f.t.Errorf("the step is %v, %#x, %s", s.State, s.ExitStatus, s.Reason)
		}
	case lost && stage == "launching" && s.State == msg.JobState_JOB_CANCELLED && code != 0: // srun has noticed it before the node daemon
	case lost:
		if s.State != msg.JobState_JOB_NODE_FAIL || code == 0 {
			f.t.Errorf("the step is %v, %#x, %s; srun has ended with %d: %s", s.State, s.ExitStatus, s.Reason, code, f.srun.Text())
		}
	default:
		if s.State != msg.JobState_JOB_FAILED || s.ExitStatus != 7<<8 || code != 7 && victim != "srun" {
			f.t.Errorf("the step is %v, %#x, %s; srun has ended with %d: %s", s.State, s.ExitStatus, s.Reason, code, f.srun.Text())
		}
	}
	for _, pid := range f.pids() {
		if syscall.Kill(pid, 0) == nil && !zombie(pid) {
			f.t.Errorf("the step has ended, and its process %d is left: %s", pid, daemontest.CommandLine(pid))
		}
	}
	f.await("the nodes forget the step", func() bool {
		for _, n := range f.nodes {
			if slices.Contains(f.steps(n), fmt.Sprintf("%d.1.%d", f.job, f.id)) {
				return false
			}
		}
		return true
	})
	if left := f.groups(); len(left) > 0 {
		f.t.Errorf("cgroups of the step are left: %v", left)
	}
	if j := f.jobs(f.job)[f.job]; j.State != msg.JobState_JOB_RUNNING || j.DerivedStatus < s.ExitStatus {
		f.t.Errorf("the job is %v, with derived status %#x of a step with %#x", j.State, j.DerivedStatus, s.ExitStatus)
	}
}

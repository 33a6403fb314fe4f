package hostile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/msg"
)

func init() {
	// meddle JOB tries all that can be done to the steps of a job, and says what came of each.
	attacks["meddle"] = func(a *attacker) {
		job, err := strconv.ParseUint(a.args[0], 10, 32)
		a.need(err)
		c, err := client.Dial(context.Background(), os.Getenv("SLUICE_SOCKET"))
		a.need(err)
		for _, m := range meddling {
			err := m.call(c, uint32(job))
			p := client.ProblemOf(err)
			if err == nil {
				a.say("%s: obeyed", m.name)
			} else if p != nil || errors.As(err, &p) {
				a.say("%s: refused, %s", m.name, p.GetPhrase())
			} else {
				a.say("%s: %v", m.name, err)
			}
		}
		secret := false
		stream, err := c.Steps(context.Background(), &msg.StepsRequest{Ended: true})
		a.need(err)
		for err == nil {
			var r *msg.StepsReply
			if r, err = stream.Recv(); err == nil {
				for _, s := range r.Steps {
					secret = secret || len(s.Key)+len(s.Certificate) > 0
				}
			}
		}
		if !errors.Is(err, io.EOF) {
			a.need(err)
		}
		a.say("secrets: %v", secret)
		a.await()
	}
	// absurd JOB asks for each of the absurd steps in a job of its own, several times, and says how many there are in the end.
	attacks["absurd"] = func(a *attacker) {
		job, err := strconv.ParseUint(a.args[0], 10, 32)
		a.need(err)
		c, err := client.Dial(context.Background(), os.Getenv("SLUICE_SOCKET"))
		a.need(err)
		for _, s := range absurd {
			made, told := 0, ""
			for range 20 {
				spec := s.spec()
				spec.Addresses = []string{"127.0.0.1:1"}
				r, err := c.CreateStep(context.Background(), &msg.CreateStepRequest{JobId: uint32(job), Spec: spec})
				switch {
				case err != nil:
					told = err.Error()
				case r.GetStep() != nil:
					made++
				}
			}
			a.say("%s: %d made, %.60s", s.name, made, strings.ReplaceAll(told, "\n", " "))
		}
		a.await()
	}
}

// meddling is what somebody may not do to the steps of another one's job.
var meddling = []struct {
	name string
	call func(c *client.Client, job uint32) error
}{
	{"create", func(c *client.Client, job uint32) error {
		_, err := c.CreateStep(context.Background(), &msg.CreateStepRequest{JobId: job,
			Spec: &msg.StepSpec{Name: "x", Overlap: true, Addresses: []string{"127.0.0.1:1"}}})
		return err
	}},
	{"attach", func(c *client.Client, job uint32) error {
		_, err := c.AttachStep(context.Background(), &msg.AttachStepRequest{JobId: job, Addresses: []string{"127.0.0.1:1"}})
		return err
	}},
	{"update", func(c *client.Client, job uint32) error {
		_, err := c.UpdateStep(context.Background(), &msg.UpdateStepRequest{Id: fmt.Sprint(job, ".0"),
			Set: []*msg.KeyValue{{Key: "TimeLimit", Value: "1"}}})
		return err
	}},
	{"end", func(c *client.Client, job uint32) error {
		_, err := c.EndAllocation(context.Background(), &msg.EndAllocationRequest{JobId: job})
		return err
	}},
	{"cancel", func(c *client.Client, job uint32) error {
		r, err := c.CancelJobs(context.Background(), &msg.CancelJobsRequest{Ids: []string{fmt.Sprint(job, ".0")}})
		for _, o := range r.GetOutcomes() {
			if err == nil && o.Problem != nil {
				err = o.Problem
			}
		}
		return err
	}},
}

// absurd are steps that no job has room for, or that cost much.
var absurd = []struct {
	name string
	spec func() *msg.StepSpec
	made bool // it is a step like others
}{
	{"tasks", func() *msg.StepSpec { return &msg.StepSpec{NumTasks: math.MaxUint32} }, false},
	{"tasks to share a CPU", func() *msg.StepSpec { return &msg.StepSpec{NumTasks: 1 << 20, Overcommit: true, Overlap: true} }, false},
	{"CPUs", func() *msg.StepSpec { return &msg.StepSpec{CpusPerTask: math.MaxUint32} }, false},
	{"tasks by CPUs", func() *msg.StepSpec { return &msg.StepSpec{CpusPerTask: 1 << 20, NumTasks: 1 << 20} }, false},
	{"tasks on each node", func() *msg.StepSpec {
		return &msg.StepSpec{NtasksPerNode: math.MaxUint32, MinNodes: 1, Overcommit: true, Overlap: true}
	}, false},
	{"nodes", func() *msg.StepSpec { return &msg.StepSpec{MinNodes: math.MaxUint32, MaxNodes: 1} }, false},
	{"nodes by tasks", func() *msg.StepSpec { return &msg.StepSpec{MinNodes: math.MaxUint32, NtasksPerNode: math.MaxUint32} }, false},
	{"memory", func() *msg.StepSpec { return &msg.StepSpec{MemPerNodeMib: math.MaxUint64} }, false},
	{"memory for each CPU", func() *msg.StepSpec { return &msg.StepSpec{MemPerCpuMib: math.MaxUint64, NumTasks: 2} }, false},
	{"memory that wraps", func() *msg.StepSpec { return &msg.StepSpec{MemPerCpuMib: 1 << 63, NumTasks: 1, CpusPerTask: 2} }, false},
	{"GPUs", func() *msg.StepSpec { return &msg.StepSpec{TresPerTask: "gres/gpu:18446744073709551615", NumTasks: 2} }, false},
	{"resources without sense", func() *msg.StepSpec { return &msg.StepSpec{TresPerStep: strings.Repeat(",", 1000) + "=:;"} }, false},
	{"the last node", func() *msg.StepSpec { return &msg.StepSpec{Relative: math.MaxInt32} }, false},
	{"nodes by a range", func() *msg.StepSpec { return &msg.StepSpec{ReqNodes: "n[0-99999999999]"} }, false},
	{"nodes by ranges", func() *msg.StepSpec { return &msg.StepSpec{ExcNodes: strings.Repeat("n[0-9999][0-9999],", 1000)} }, false},
	{"hosts", func() *msg.StepSpec { return &msg.StepSpec{Distribution: "arbitrary", Hosts: make([]string, 60000)} }, false},
	{"one host", func() *msg.StepSpec {
		hosts := make([]string, 30000)
		for i := range hosts {
			hosts[i] = "n1"
		}
		return &msg.StepSpec{Distribution: "arbitrary", Hosts: hosts, Overcommit: true, Overlap: true}
	}, false},
	{"planes", func() *msg.StepSpec { return &msg.StepSpec{Distribution: "plane=99999999999999999999", Overlap: true} }, true},
	{"a long time", func() *msg.StepSpec { return &msg.StepSpec{TimeLimitS: math.MaxUint32 - 1, Overlap: true} }, true},
	{"a name of control characters", func() *msg.StepSpec { return &msg.StepSpec{Name: "\x1b]0;x\a\n\x00", Overlap: true} }, true},
}

// held is an allocation of a user's without a shell.
func (c *cluster) held(uid uint32) string {
	c.t.Helper()
	out, code := c.run(uid, "salloc", "--no-shell", "-n2").end()
	_, id, found := strings.Cut(strings.TrimSpace(out), "Granted job allocation ")
	if code != 0 || !found {
		c.t.Fatalf("salloc: exit %d: %s", code, out)
	}
	return id
}

// TestStepsOfOthers: nobody can make a step in another one's job, attach to one, change or end it, or learn the key that its nodes and srun
// know each other by; and the job's owner has all of that.
func TestStepsOfOthers(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.startNode()
	job := c.held(alice)
	begun := filepath.Join(c.dir, "begun")
	must(t, os.Mkdir(begun, 0o777))
	must(t, os.Chmod(begun, 0o777))
	srun := c.run(alice, "srun", "--jobid="+job, "-n1", "sh", "-c", fmt.Sprintf("touch %s/here; read line; echo got $line", begun))
	c.await("the step runs", func() bool { _, err := os.Stat(begun + "/here"); return err == nil })
	for _, uid := range []uint32{mallory, stranger} {
		a := c.attack(uid, "meddle", job)
		for _, m := range meddling {
			if l := a.line(); l != m.name+": refused, Access/permission denied" && l != m.name+": refused, Invalid user id" {
				t.Errorf("%d: %s", uid, l)
			}
		}
		if l := a.line(); l != "secrets: false" {
			t.Errorf("%d: %s", uid, l)
		}
		a.kill()
	}
	_, err := srun.in.WriteString("a line\n")
	must(t, err)
	if out, code := srun.end(); code != 0 || out != "got a line\n" {
		t.Errorf("the step: exit %d: %s", code, out)
	}
	if out, code := c.run(alice, "scancel", job).end(); code != 0 {
		t.Errorf("scancel: %s", out)
	}
	c.await("the job has ended", func() bool { out, _ := c.run(alice, "squeue", "-h").end(); return out == "" })
	c.unharmed()
}

// TestAbsurdSteps: what no job has room for is refused, and costs the controller nothing; what is only odd makes a step like others.
func TestAbsurdSteps(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.startNode()
	job := c.held(mallory)
	before := c.memory()
	a := c.attack(mallory, "absurd", job)
	for _, s := range absurd {
		l := a.line()
		if made := strings.HasPrefix(l, s.name+": 20 made, "); made != s.made || !made && !strings.HasPrefix(l, s.name+": 0 made, ") {
			t.Error(l)
		}
	}
	c.costs(before, 60<<20)
	a.kill()
	if out, code := c.run(mallory, "scancel", job).end(); code != 0 {
		t.Errorf("scancel: %s", out)
	}
	c.await("the job has ended", func() bool { out, _ := c.run(mallory, "squeue", "-h").end(); return out == "" })
	c.await("the node has forgotten its steps", func() bool {
		left, err := os.ReadDir(filepath.Join(c.dir, "spool/n1/steps"))
		return err == nil && !slices.ContainsFunc(left, func(d os.DirEntry) bool { return d.Name()[0] != '.' })
	})
	c.unharmed()
}

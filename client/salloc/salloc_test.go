package salloc

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/clienttest"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/internal/test/leaktest"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// try runs salloc against a fake controller.
func try(t *testing.T, ctl *clienttest.Controller, dir string, args ...string) (stderr string, exit int) {
	t.Helper()
	socket, stop, err := ctl.Serve(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	var out, errs bytes.Buffer
	env := &command.Env{Name: "salloc", Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs,
		Args:    append([]string{"salloc"}, args...),
		Environ: []string{"HOME=/", "PATH=/bin:/usr/bin", "SLURM_CONF=/nonexistent", "SLURM_JOB_ID=3", "SLURM_NTASKS=9"}, Now: time.Now,
		Sleep: time.Sleep, Getwd: func() (string, error) { return dir, nil },
		Dial: func(ctx context.Context) (*client.Client, error) { return client.Dial(ctx, socket) }}
	exit = Main(env, args)
	return errs.String(), exit
}

func TestCommand(t *testing.T) {
	ctl, dir := &clienttest.Controller{}, t.TempDir()
	file := filepath.Join(dir, "env")
	said, exit := try(t, ctl, dir, "-N2", "-J", "x", "sh", "-c", "env > "+file+"; exit 5")
	if exit != 5 || !strings.Contains(said, "salloc: Granted job allocation ") ||
		!strings.Contains(said, "salloc: Relinquishing job allocation ") {
		t.Errorf("exit %d, said %q", exit, said)
	}
	environ, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(environ), "\n")
	for _, want := range []string{"SLURM_JOB_NODELIST=n1", "SLURM_JOB_NUM_NODES=1", "SLURM_JOB_CPUS_PER_NODE=4",
		"SLURM_SUBMIT_DIR=" + dir} {
		if !slices.Contains(lines, want) {
			t.Errorf("%s is not in the environment", want)
		}
	}
	if slices.Contains(lines, "SLURM_JOB_ID=3") || slices.Contains(lines, "SLURM_NTASKS=9") {
		t.Error("what describes another job is in the environment")
	}
	if e := ctl.Stepping.Ended; len(e) != 1 || e[0].GetExitStatus() != 5<<8 {
		t.Errorf("ended %v", e)
	}
}

func TestWaiting(t *testing.T) {
	var mu sync.Mutex
	asked := 0
	ctl := &clienttest.Controller{}
	ctl.Stepping.Allocation = func(req *pb.WaitAllocationRequest) *pb.JobRecord {
		mu.Lock()
		defer mu.Unlock()
		job := clienttest.Job(req.GetJobId(), 1)
		if asked++; asked < 3 {
			job.State = pb.JobState_JOB_PENDING
		}
		return job
	}
	said, exit := try(t, ctl, t.TempDir(), "--no-shell")
	want := []string{"Pending job allocation ", "queued and waiting for resources", "has been allocated resources",
		"Granted job allocation "}
	for _, w := range want {
		if strings.Count(said, w) != 1 {
			t.Errorf("%q is not said once in %q", w, said)
		}
	}
	if exit != 0 || len(ctl.Stepping.Ended) != 0 {
		t.Errorf("exit %d, ended %v", exit, ctl.Stepping.Ended)
	}
	ctl.Stepping.Allocation = func(req *pb.WaitAllocationRequest) *pb.JobRecord {
		job := clienttest.Job(req.GetJobId(), 1)
		job.State = pb.JobState_JOB_CANCELLED
		return job
	}
	if said, exit := try(t, ctl, t.TempDir(), "true"); exit != 1 || !strings.Contains(said, "salloc: Job has been cancelled\n") {
		t.Errorf("exit %d, said %q", exit, said)
	}
}

// TestWhyAJobWaits: with -v salloc says it, otherwise only at a terminal, unless the job asks for more than there is, which -Q does not
// hide either. Slurm's line for the reason stands where Slurm prints it.
func TestWhyAJobWaits(t *testing.T) {
	for _, c := range []struct{ args, reason, detail, want string }{
		{"", "PartitionConfig", "",
			"salloc: Requested partition configuration not available now\nsalloc: Pending job allocation 1\n" +
				"salloc: job 1 queued and waiting for resources\n" +
				"salloc: error: job 1 waits: PartitionConfig: requests 1000 CPUs, partition debug has 4\n" +
				"salloc: error: would start now: with --ntasks=4\n"},
		{"-Q", "PartitionConfig", "", "salloc: error: job 1 waits: PartitionConfig: requests 1000 CPUs, partition debug has 4\n" +
			"salloc: error: would start now: with --ntasks=4\n"},
		{"", "ReqNodeNotAvail, UnavailableNodes:n1", "", "salloc: Required node not available (down, drained or reserved)\n" +
			"salloc: Pending job allocation 1\nsalloc: job 1 queued and waiting for resources\n"},
		{"-v", "Resources", "4 nodes are busy", "salloc: Pending job allocation 1\nsalloc: job 1 queued and waiting for resources\n" +
			"salloc: job 1 waits: Resources: 4 nodes are busy\n"},
		{"", "Resources", "4 nodes are busy", "salloc: Pending job allocation 1\nsalloc: job 1 queued and waiting for resources\n"},
		{"-Q", "Resources", "4 nodes are busy", ""},
	} {
		var mu sync.Mutex
		asked := 0
		ctl := &clienttest.Controller{Explained: map[string]string{
			"1": "reason: PartitionConfig\nrequests 1000 CPUs, partition debug has 4\nwould start now: with --ntasks=4\n"}}
		ctl.Stepping.Allocation = func(req *pb.WaitAllocationRequest) *pb.JobRecord {
			mu.Lock()
			defer mu.Unlock()
			job := clienttest.Job(req.GetJobId(), 1)
			if asked++; asked < 4 {
				job.State, job.Reason, job.ReasonDetail = pb.JobState_JOB_PENDING, c.reason, c.detail
			}
			return job
		}
		said, exit := try(t, ctl, t.TempDir(), append(strings.Fields(c.args), "--no-shell")...)
		kept, _, _ := strings.Cut(said, "salloc: job 1 has been allocated resources\n")
		if _, after, ok := strings.Cut(kept, "end of defined options\n"); ok {
			kept = after
		}
		if exit != 0 || kept != c.want {
			t.Errorf("%q, %s: exit %d, said\n%s, not\n%s", c.args, c.reason, exit, kept, c.want)
		}
	}
}

func TestRefused(t *testing.T) {
	ctl := &clienttest.Controller{}
	for _, args := range [][]string{{"/nonexistent/x"}, {"nosuchprogram"}, {"--no-shell", "true"}, {"-D", "/nonexistent", "true"}, {"-n0"},
		{"-Kx", "true"}, {"a", ":", "b"}, {"--bogus"}} {
		if said, exit := try(t, ctl, t.TempDir(), args...); exit == 0 || !strings.HasPrefix(said, "salloc: ") {
			t.Errorf("%v: exit %d, said %q", args, exit, said)
		}
	}
}

// TestNameOfAJobWithoutShell is Slurm's for it.
func TestNameOfAJobWithoutShell(t *testing.T) {
	for args, want := range map[string]string{"--no-shell": "no-shell", "--no-shell -J x": "x", "true": "interactive"} {
		ctl := &clienttest.Controller{}
		if said, exit := try(t, ctl, t.TempDir(), strings.Fields(args)...); exit != 0 || ctl.Submitted[0].GetSpec().GetName() != want {
			t.Errorf("%s: exit %d, %s, %v", args, exit, said, ctl.Submitted)
		}
	}
}

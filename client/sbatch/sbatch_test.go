package sbatch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"github.com/sluice-hpc/sluice/client/submission"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/internal/test/leaktest"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/clienttest"
	"github.com/sluice-hpc/sluice/client/command"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// session is one run of sbatch against a fake controller.
type session struct {
	ctl     *clienttest.Controller
	dir     string
	stdin   string
	environ []string
	slept   time.Duration
	away    time.Duration // nobody listens for so long
	gone    error         // what connecting says then
}

func newSession(t *testing.T) *session {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return &session{ctl: &clienttest.Controller{}, dir: dir, environ: []string{"HOME=/home/u", "PATH=/bin", "FOO=1", "SLURM_CONF=/c"}}
}

func (s *session) file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (s *session) run(t *testing.T, args ...string) (stdout, stderr string, exit int) {
	t.Helper()
	socket, stop, err := s.ctl.Serve(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	var out, errs bytes.Buffer
	clock := time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)
	env := &command.Env{Name: "sbatch", Stdin: strings.NewReader(s.stdin), Stdout: &out, Stderr: &errs,
		Args: append([]string{"sbatch"}, args...), Environ: s.environ, Getwd: func() (string, error) { return s.dir, nil },
		Now:   func() time.Time { return clock.Add(s.slept) },
		Sleep: func(d time.Duration) { s.slept += d },
		Dial: func(ctx context.Context) (*client.Client, error) {
			if s.slept < s.away {
				return nil, &client.ConnectError{Socket: socket, Err: s.gone}
			}
			return client.Dial(ctx, socket)
		}}
	exit = Main(env, args)
	return out.String(), errs.String(), exit
}

// one runs sbatch, which has to succeed, and returns what was submitted.
func (s *session) one(t *testing.T, args ...string) *pb.SubmitRequest {
	t.Helper()
	out, errs, exit := s.run(t, args...)
	if exit != 0 || len(s.ctl.Submitted) == 0 {
		t.Fatalf("sbatch %q: exit %d, %s%s", args, exit, out, errs)
	}
	return s.ctl.Submitted[len(s.ctl.Submitted)-1]
}

const script = "#!/bin/sh\n#SBATCH -J fromscript -p a\necho $1\n"

func TestFile(t *testing.T) {
	s := newSession(t)
	path := s.file(t, "job.sh", script)
	r := s.one(t, "-p", "b", "job.sh", "-p", "c d")
	spec := r.GetSpec()
	if string(r.GetScript()) != script || spec.GetName() != "fromscript" || spec.GetPartition() != "b" || spec.GetCommand() != path {
		t.Errorf("submitted %v", spec)
	}
	if !slices.Equal(spec.GetArgs(), []string{"-p", "c d"}) || spec.GetSubmitLine() != "sbatch -p b job.sh -p c d" ||
		spec.GetWorkDir() != s.dir {
		t.Errorf("args %q, line %q, folder %q", spec.GetArgs(), spec.GetSubmitLine(), spec.GetWorkDir())
	}
	if len(r.GetRequestId()) != 32 || len(spec.GetRlimits()) != 10 || spec.GetAllocNode() == "" {
		t.Errorf("request %q, limits %v, host %q", r.GetRequestId(), spec.GetRlimits(), spec.GetAllocNode())
	}
}

func TestFoundInChdirAndPath(t *testing.T) {
	s := newSession(t)
	for _, d := range []string{"sub", "bin"} {
		if err := os.Mkdir(filepath.Join(s.dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s.file(t, "sub/in.sh", "#!/bin/sh\n")
	s.file(t, "bin/tool.sh", "#!/bin/sh\n")
	s.environ = append(s.environ, "PATH="+s.dir+"/bin")
	if got := s.one(t, "-D", "sub", "in.sh").GetSpec(); got.GetCommand() != s.dir+"/sub/in.sh" || got.GetWorkDir() != s.dir+"/sub" {
		t.Errorf("command %q in %q", got.GetCommand(), got.GetWorkDir())
	}
	if got := s.one(t, "tool.sh").GetSpec().GetCommand(); got != s.dir+"/bin/tool.sh" {
		t.Errorf("command %q", got)
	}
}

func TestStdinAndWrap(t *testing.T) {
	s := newSession(t)
	s.stdin = script
	if r := s.one(t, "-J", "x"); string(r.GetScript()) != script || r.GetSpec().GetName() != "x" || r.GetSpec().GetCommand() != "(null)" {
		t.Errorf("submitted %v", r)
	}
	s.stdin = "#!/bin/sh\n"
	if r := s.one(t); r.GetSpec().GetName() != "sbatch" {
		t.Errorf("name %q", r.GetSpec().GetName())
	}
	r := s.one(t, "--wrap=echo 'a b'")
	if want := "#!/bin/sh\n# This script was created by sbatch --wrap.\n\necho 'a b'\n"; string(r.GetScript()) != want ||
		r.GetSpec().GetName() != "wrap" {
		t.Errorf("script %q, name %q", r.GetScript(), r.GetSpec().GetName())
	}
}

func TestOutputForms(t *testing.T) {
	s := newSession(t)
	conf := s.file(t, "slurm.conf", "ClusterName=Lab\n")
	s.environ = append(s.environ, "SLURM_CONF="+conf)
	for line, want := range map[string]string{
		"--wrap=true": "Submitted batch job ", "--parsable --wrap=true": "", "-Q --wrap=true": "silent",
		"-M lab --wrap=true": "on cluster lab", "-M lab --parsable --wrap=true": ";lab",
	} {
		out, errs, exit := s.run(t, strings.Fields(line)...)
		switch {
		case exit != 0 || errs != "":
			t.Errorf("%s: exit %d, %q", line, exit, errs)
		case want == "silent" && out != "":
			t.Errorf("%s printed %q", line, out)
		case want != "silent" && !strings.Contains(out, want):
			t.Errorf("%s printed %q, want %q", line, out, want)
		}
	}
	out, _, _ := s.run(t, "--parsable", "--wrap=true")
	if out != fmt.Sprintln(len(s.ctl.Submitted)) {
		t.Errorf("--parsable printed %q", out)
	}
	if _, errs, exit := s.run(t, "-M", "other", "--wrap=true"); exit != 1 ||
		!strings.Contains(errs, "No cluster 'other' known by database.") {
		t.Errorf("-M other: %d, %q", exit, errs)
	}
	gather := filepath.Join(t.TempDir(), "gather.sh")
	if err := os.WriteFile(gather, []byte("#!/bin/sh\nsbcast a /tmp/a\nsgather /tmp/b b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, errs, exit := s.run(t, gather); exit != 0 ||
		!strings.Contains(errs, "line 3 of "+gather+" calls sgather, which Sluice does not have") {
		t.Errorf("a command that is not there: %d, %q", exit, errs)
	}
	_, errs, exit := s.run(t, "--test-only", "--wrap=true")
	if want := "sbatch: Job 7 to start at 2023-11-14T22:13:20 using 1 processors on nodes n1 in partition debug\n"; exit != 0 ||
		!strings.HasSuffix(errs, strings.SplitN(want, " to ", 2)[1]) {
		t.Errorf("--test-only: %d, %q", exit, errs)
	}
}

func TestExport(t *testing.T) {
	s := newSession(t)
	s.environ = append(s.environ, "BAD=\xff", "SPACE=a b", "=odd", "plain")
	names := func(r *pb.SubmitRequest) string {
		var list []string
		for _, v := range r.GetEnv() {
			if n, _, _ := strings.Cut(v, "="); n == "FOO" || n == "SPACE" || n == "NEW" || n == "SLURM_CONF" || n == "BAD" || n == "Q" {
				list = append(list, v)
			}
		}
		slices.Sort(list)
		return strings.Join(list, " ")
	}
	for export, want := range map[string]string{
		"":                          "BAD=\xff FOO=1 SLURM_CONF=/c SPACE=a b",
		"ALL":                       "BAD=\xff FOO=1 SLURM_CONF=/c SPACE=a b",
		"NONE":                      "SLURM_CONF=/c",
		"NIL":                       "SLURM_CONF=/c",
		"FOO,NEW=3,MISSING,Q='a,b'": "FOO=1 NEW=3 Q='a,b' SLURM_CONF=/c",
		"ALL,NEW=3,FOO=9":           "BAD=\xff FOO=9 NEW=3 SLURM_CONF=/c SPACE=a b",
		"NEW=3,FOO=9,ALL":           "BAD=\xff FOO=1 NEW=3 SLURM_CONF=/c SPACE=a b",
		"FOO=9":                     "FOO=9 SLURM_CONF=/c",
	} {
		args := []string{"--wrap=true"}
		if export != "" {
			args = append([]string{"--export=" + export}, args...)
		}
		r := s.one(t, args...)
		if got := names(r); got != want {
			t.Errorf("--export=%s: %s, want %s", export, got, want)
		}
		if r.GetSpec().GetExportEnv() != export {
			t.Errorf("--export=%s is kept as %q", export, r.GetSpec().GetExportEnv())
		}
		for _, must := range []string{"SLURM_SUBMIT_DIR=" + s.dir, "SLURM_PRIO_PROCESS=" + nice(t)} {
			if !slices.Contains(r.GetEnv(), must) {
				t.Errorf("--export=%s: %s is missing", export, must)
			}
		}
		login := export == "NONE" || export == "NIL" || strings.HasPrefix(export, "FOO")
		if slices.Contains(r.GetEnv(), "SLURM_GET_USER_ENV=1") != login {
			t.Errorf("--export=%s: SLURM_GET_USER_ENV is not %v", export, login)
		}
		if hasHome := slices.Contains(r.GetEnv(), "HOME=/home/u"); hasHome == login {
			t.Errorf("--export=%s: the submitter's HOME is there: %v", export, hasHome)
		}
	}
}

// nice is this process's nice value, as ps(1) reads it: a job says the submitter's, as under a real Slurm 22.05.
func nice(t *testing.T) string {
	text, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ") // the name may hold blanks
	return strings.Fields(rest)[19-3]             // proc(5)
}

func TestExportFile(t *testing.T) {
	s := newSession(t)
	path := s.file(t, "env", "A=1\x00B=x\ny\x00")
	r := s.one(t, "--export-file="+path, "--wrap=true")
	if !slices.Contains(r.GetEnv(), "A=1") || !slices.Contains(r.GetEnv(), "B=x\ny") || slices.Contains(r.GetEnv(), "FOO=1") {
		t.Errorf("environment %q", r.GetEnv())
	}
}

// A job that submits a job does not hand its own allocation on.
func TestInsideAJob(t *testing.T) {
	s := newSession(t)
	s.environ = append(s.environ, "SLURM_JOB_ID=7", "SLURM_NTASKS=4", "SLURM_MEM_PER_NODE=50", "SLURM_JOB_GPUS=0",
		"CUDA_VISIBLE_DEVICES=0", "SLURM_TIME_FORMAT=standard")
	env := s.one(t, "--wrap=true").GetEnv()
	for _, gone := range []string{"SLURM_JOB_ID=7", "SLURM_NTASKS=4", "SLURM_MEM_PER_NODE=50", "CUDA_VISIBLE_DEVICES=0"} {
		if slices.Contains(env, gone) {
			t.Errorf("%s is handed on", gone)
		}
	}
	for _, kept := range []string{"SLURM_TIME_FORMAT=standard", "SLURM_CONF=/c", "FOO=1"} {
		if !slices.Contains(env, kept) {
			t.Errorf("%s is lost", kept)
		}
	}
}

func TestEnvironmentLimits(t *testing.T) {
	s := newSession(t)
	s.environ = append(s.environ, "BIG="+strings.Repeat("x", submission.MaxEnvBytes))
	if _, errs, exit := s.run(t, "--wrap=true"); exit != 1 || !strings.Contains(errs, "Job script or environment too large") ||
		!strings.Contains(errs, "--export=NONE") {
		t.Errorf("1 MiB of variables: %d, %q", exit, errs)
	}
	s.environ = nil
	for i := range submission.MaxEnvVars + 1 {
		s.environ = append(s.environ, fmt.Sprintf("V%d=", i))
	}
	if _, _, exit := s.run(t, "--wrap=true"); exit != 1 {
		t.Errorf("%d variables: exit %d", len(s.environ), exit)
	}
}

func TestLargeScriptTravelsInPieces(t *testing.T) {
	s := newSession(t)
	text := "#!/bin/sh\n" + strings.Repeat("# filler line\n", 250000)
	s.stdin = text
	if r := s.one(t); string(r.GetScript()) != text {
		t.Errorf("%d of %d bytes arrived", len(r.GetScript()), len(text))
	}
}

func TestRetriesWithTheSameID(t *testing.T) {
	s := newSession(t)
	s.ctl.DropCalls = 3
	out, errs, exit := s.run(t, "--wrap=true")
	if exit != 0 || out != "Submitted batch job 1\n" {
		t.Fatalf("exit %d, %q, %q", exit, out, errs)
	}
	for _, r := range s.ctl.Submitted {
		if r.GetRequestId() != s.ctl.Submitted[0].GetRequestId() {
			t.Error("a retry had another request id")
		}
	}
	if len(s.ctl.Submitted) != 4 || s.slept == 0 {
		t.Errorf("%d tries, slept %v", len(s.ctl.Submitted), s.slept)
	}
}

func TestGivesUpWhenTheControllerStaysAway(t *testing.T) {
	s := newSession(t)
	s.ctl.DropCalls = 1 << 30
	_, errs, exit := s.run(t, "--wrap=true")
	if exit != 1 || !strings.Contains(errs, "it is unknown whether the job was accepted") || s.slept < retryS*time.Second {
		t.Errorf("exit %d after %v: %q", exit, s.slept, errs)
	}
}

// TestControllerRestarts: sbatch waits for a controller that is not there at the moment, for MessageTimeout.
func TestControllerRestarts(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "slurm.conf")
	if err := os.WriteFile(conf, []byte("ClusterName=c\nMessageTimeout=3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		away   time.Duration
		gone   error
		args   string
		exit   int
		waited bool
	}{
		{2 * time.Second, syscall.ECONNREFUSED, "--wrap=true", 0, true},
		{2 * time.Second, syscall.ENOENT, "--wrap=true", 0, true},
		{time.Hour, syscall.ECONNREFUSED, "--wrap=true", 1, true},
		{time.Hour, syscall.EACCES, "--wrap=true", 1, false},
		{time.Hour, syscall.ECONNREFUSED, "--test-only --wrap=true", 1, false},
	} {
		s := newSession(t)
		s.away, s.gone, s.environ = c.away, c.gone, append(s.environ, "SLURM_CONF="+conf)
		_, errs, exit := s.run(t, strings.Fields(c.args)...)
		if exit != c.exit || (s.slept >= 2*time.Second) != c.waited || s.slept > 5*time.Second {
			t.Errorf("%v for %v: exit %d after %v: %s", c.gone, c.away, exit, s.slept, errs)
		}
		if exit != 0 && !strings.Contains(errs, "Unable to contact slurm controller (connect failure)") && c.args == "--wrap=true" {
			t.Errorf("%v: %s", c.gone, errs)
		}
	}
}

func TestRefusals(t *testing.T) {
	s := newSession(t)
	s.ctl.Fail = pb.NewProblem(pb.CodeInvalidPartition, "there is no partition bad").WithHint("there are debug and long")
	_, errs, exit := s.run(t, "-p", "bad", "--wrap=true")
	want := "sbatch: error: invalid partition specified: bad\nsbatch: error: Batch job submission failed: Invalid partition name " +
		"specified\nsbatch: error: there is no partition bad (there are debug and long)\n"
	if exit != 1 || errs != want {
		t.Errorf("exit %d, %q", exit, errs)
	}
	_, errs, exit = s.run(t, "--test-only", "--wrap=true")
	if exit != 1 || !strings.HasPrefix(errs, "allocation failure: Invalid partition name specified\n") {
		t.Errorf("exit %d, %q", exit, errs)
	}
	s.ctl.Fail = pb.NewProblem(pb.CodeQueueFull, "")
	_, errs, exit = s.run(t, "--wrap=true")
	if exit != 1 || strings.Count(errs, "sleeping and retrying") != submission.BusyTries+1 {
		t.Errorf("a full queue: exit %d, %q", exit, errs)
	}
}

func TestWait(t *testing.T) {
	for _, c := range []struct {
		job  *pb.JobRecord
		exit int
	}{
		{&pb.JobRecord{State: pb.JobState_JOB_COMPLETED}, 0},
		{&pb.JobRecord{State: pb.JobState_JOB_FAILED, ExitStatus: 3 << 8}, 3},
		{&pb.JobRecord{State: pb.JobState_JOB_TIMEOUT, ExitStatus: 15}, 1},
		{&pb.JobRecord{State: pb.JobState_JOB_CANCELLED}, 1},
		{&pb.JobRecord{State: pb.JobState_JOB_NODE_FAIL}, 1},
	} {
		s := newSession(t)
		s.ctl.Finished = c.job
		if out, errs, exit := s.run(t, "-W", "--wrap=true"); exit != c.exit || out != "Submitted batch job 1\n" {
			t.Errorf("%v: exit %d, want %d; %q", c.job, exit, c.exit, errs)
		}
	}
}

func TestGresHelp(t *testing.T) {
	s := newSession(t)
	s.ctl.NodeList = []*pb.NodeRecord{{Name: "a", Gres: "gpu:a100:2,shard:4"}, {Name: "b", Gres: "gpu:h100:1"}, {Name: "c"}}
	if out, errs, exit := s.run(t, "--gres=help", "--wrap=true"); exit != 0 ||
		out != "Valid gres options are:\ngpu[[:type]:count]\nshard[[:type]:count]\n" {
		t.Errorf("exit %d, %q, %q", exit, out, errs)
	}
}

func TestTexts(t *testing.T) {
	s := newSession(t)
	for arg, want := range map[string]string{"--version": "slurm 25.", "-V": "slurm 25.", "--usage": "Usage: sbatch",
		"--help": "--cpus-per-task=n", "-h": "Examples:"} {
		if out, _, exit := s.run(t, arg); exit != 0 || !strings.Contains(out, want) {
			t.Errorf("%s: exit %d, %q", arg, exit, out)
		}
	}
	if _, errs, _ := s.run(t, "-v", "-n4", "--wrap=true"); !strings.Contains(errs, "sbatch: ntasks              : 4\n") {
		t.Errorf("-v says %q", errs)
	}
	s.stdin = "#!/bin/sh\n#PBS -N x\n#PBS -y\n"
	if _, errs, _ := s.run(t); !strings.Contains(errs, "#PBS -y is not read") {
		t.Errorf("PBS: %q", errs)
	}
	if _, errs, _ := s.run(t, "--acctg-freq=task=1", "--wrap=true"); !strings.Contains(errs, "--acctg-freq is accepted but has no effect") {
		t.Errorf("ignored option: %q", errs)
	}
}

func TestTwoOptionsOfRoot(t *testing.T) {
	s := newSession(t)
	if os.Getuid() != 0 {
		if _, errs, exit := s.run(t, "--uid=0", "--wrap=true"); exit != 1 || !strings.Contains(errs, "for root") {
			t.Errorf("exit %d, %q", exit, errs)
		}
		return
	}
	spec := s.one(t, "--uid=54321", "--gid=54322", "--wrap=true").GetSpec()
	if spec.GetUid() != 54321 || spec.GetGid() != 54322 {
		t.Errorf("uid %d, gid %d", spec.GetUid(), spec.GetGid())
	}
}

// TestOpenScriptSaysWhy: what keeps the script from being read is told of the folders where it was looked for, and not of PATH.
func TestOpenScriptSaysWhy(t *testing.T) {
	dir, path := t.TempDir(), t.TempDir()
	file := filepath.Join(dir, "file")
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "folder"), 0o755), os.Mkdir(filepath.Join(path, "run"), 0o755),
		os.WriteFile(file, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"folder":       filepath.Join(dir, "folder") + " is a directory",
		dir:            dir + " is a directory",
		"run":          "run: no such file in " + dir + ", nor in PATH",
		"./run":        "./run: no such file in " + dir,
		"/no/such":     "/no/such: no such file",
		file + "/x":    "open " + file + "/x: not a directory",
		"missing.sh":   "missing.sh: no such file in " + dir + ", nor in PATH",
		"folder/../no": "folder/../no: no such file in " + dir,
	} {
		if _, f, why := openScript(name, []string{dir}, path); f != nil || why != want {
			t.Errorf("%s: %q, want %q", name, why, want)
		}
	}
}

// TestHeterogeneousJobs: they are refused by name, wherever their components are separated.
func TestHeterogeneousJobs(t *testing.T) {
	s := newSession(t)
	s.file(t, "job.sh", script)
	s.file(t, "het.sh", "#!/bin/sh\n#SBATCH -n1\n#SBATCH hetjob\n#SBATCH -n2\ntrue\n")
	s.file(t, "pack.sh", "#!/bin/sh\n#SBATCH packjob\ntrue\n")
	for _, args := range [][]string{{"-n1", ":", "-n2", "job.sh"}, {"job.sh", "a", ":", "b"}, {"--wrap=true", ":", "-n2"}, {"het.sh"},
		{"pack.sh"}} {
		_, errs, exit := s.run(t, args...)
		if exit != 1 || !strings.HasPrefix(errs, "sbatch: error: heterogeneous jobs are not supported\n") {
			t.Errorf("%q: exit %d, %s", args, exit, errs)
		}
	}
	if len(s.ctl.Submitted) > 0 {
		t.Error("something was submitted")
	}
}

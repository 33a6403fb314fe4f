package srun

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/joboptions"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/stepio"
	"github.com/sluice-hpc/sluice/client/submission"
	"github.com/sluice-hpc/sluice/client/terminal"
	"github.com/sluice-hpc/sluice/proto/stepwire"
)

const (
	// quietWait is how long waiting for other steps is not reported: a step that is about to end is gone by then.
	quietWait = 500 * time.Millisecond
	pollWait  = 20 * time.Second
	// cleanUpWait is how long --immediate waits: a step whose srun has just returned may not have been cleaned up yet.
	cleanUpWait = 250 * time.Millisecond
	// askAfter is when srun asks the controller to report the end of the step, and of its own job. Most have ended by then.
	askAfter = 3 * time.Second
	// lastWords is how long nodes may take to explain failed tasks.
	lastWords = time.Second
	// launchWithin bounds how long connected nodes wait for the others.
	launchWithin = time.Minute
	// graceEnded is how long nodes may take to report an end that the controller already knows.
	graceEnded = 5 * time.Second
)

// runStep creates the step in the job and runs its tasks.
func (r *run) runStep(ctx context.Context) int {
	if r.client == nil {
		c, err := r.sender.Dial(ctx)
		if err != nil {
			return r.refusedStep(err)
		}
		r.client = c
		defer c.Close()
	}
	if err := r.sendProgram(ctx); err != nil {
		return r.notSent(err)
	}
	r.nodesOfJob(ctx)
	if r.wanted == nil {
		if err := r.want(); err != nil {
			return r.env.Refuse(err)
		}
		defer r.listen.Close()
	}
	if r.step == nil {
		if err := r.create(ctx); err != nil {
			return r.refusedStep(err)
		}
	}
	defer r.files.close()
	return r.launch(ctx)
}

// want starts listening for the step's nodes and builds the request to the controller.
func (r *run) want() (err error) {
	id, err := submission.RandomID()
	if err != nil {
		return err
	}
	if r.listen, err = stepio.Listen(r.conf.portRange); err == nil {
		r.wanted = &msg.CreateStepRequest{JobId: r.jobID(), Spec: r.spec(r.listen.Addresses()), RequestId: id}
	}
	return err
}

// create requests the step until there is room for it.
func (r *run) create(ctx context.Context) error {
	req := r.wanted
	req.JobId, req.WaitMs = r.jobID(), uint32(quietWait.Milliseconds())
	if o := r.req.Run; o.ImmediateGiven && r.alloc == nil {
		req.WaitMs = uint32(cleanUpWait.Milliseconds())
		if o.Immediate > 1 {
			req.WaitMs = o.Immediate * 1000
		}
	}
	told := false
	for {
		reply, err := r.ask(ctx, req)
		if err != nil {
			return err
		}
		if reply.GetStep() != nil {
			r.step, r.job = reply.GetStep(), reply.GetJob()
			if told {
				r.infof("Step created for job %d", r.step.GetJobId())
			}
			return nil
		}
		busy := reply.GetBusy()
		if req.Spec.Immediate {
			return &busyError{busy}
		}
		if !told {
			told = true
			r.infof("Job %d step creation temporarily disabled, retrying (%s)", r.jobID(), busy.GetPhrase())
			if more := command.Diagnosis(busy); more != "" && !r.req.Quiet && (r.req.Verbose > 0 || command.IsTerminal(r.env.Stderr)) {
				r.env.Infof("%s", more)
			}
		}
		req.WaitMs = uint32(pollWait.Milliseconds())
	}
}

// busyError reports that --immediate was given and other steps hold the resources.
type busyError struct{ problem *msg.Problem }

func (b *busyError) Error() string { return b.problem.GetPhrase() }

// ask makes one call, which a signal interrupts.
func (r *run) ask(ctx context.Context, req *msg.CreateStepRequest) (*msg.CreateStepReply, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		reply *msg.CreateStepReply
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		reply, err := submission.Patiently(ctx, r.sender, func() (*msg.CreateStepReply, error) { return r.client.CreateStep(ctx, req) })
		answers <- answer{reply, err}
	}()
	for {
		select {
		case got := <-answers:
			return got.reply, got.err
		case s := <-r.sig.c:
			switch n, _ := s.(syscall.Signal); n {
			case syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT:
				return nil, &submission.Interrupted{Signal: n}
			}
		}
	}
}

// launch starts the tasks and returns when they have ended.
func (r *run) launch(ctx context.Context) (exit int) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t := newTasks(r)
	work, err := r.work()
	if err == nil {
		err = r.files.onlyTasks(r.step.GetNumTasks())
	}
	if err == nil {
		err = r.files.open(r)
	}
	if err != nil {
		t.byControllerNow()
		return r.env.Refuse(err)
	}
	out := r.files.output(r)
	r.program(r.req.Run.Prolog, r.conf.prolog, work)
	defer func() { r.program(r.req.Run.Epilog, r.conf.epilog, work) }()
	restore := sync.OnceFunc(r.rawTerminal(work))
	defer restore()
	r.describe(t)
	if t.session, err = stepio.New(r.listen, r.step, work, out, t); err != nil {
		t.byControllerNow()
		return r.env.Refuse(err)
	}
	t.session.Accept()
	defer t.session.Close()
	r.feed(ctx, t)
	t.follow(ctx)
	_ = out.Flush()
	t.tellAll()
	restore()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.killed && !t.told && !t.quiet {
		r.infof("Force Terminated StepId=%s", t.id())
	}
	if t.failed && t.worst == 0 {
		t.worst = 1
	}
	return min(t.worst, 255)
}

// describe prints with -v where tasks run.
func (r *run) describe(t *tasks) {
	if r.req.Verbose == 0 {
		return
	}
	var counts []string
	alloc := r.job.GetAlloc()
	for i := 0; i < len(alloc); {
		j := i
		for j < len(alloc) && alloc[j].GetCpus() == alloc[i].GetCpus() {
			j++
		}
		counts = append(counts, fmt.Sprintf("%d(x%d)", alloc[i].GetCpus(), j-i))
		i = j
	}
	r.env.Infof("jobid %d: nodes(%d):`%s', cpu counts: %s", r.job.GetId(), len(alloc), r.job.GetNodeList(), strings.Join(counts, ","))
	for _, n := range r.step.GetNodes() {
		r.env.Infof("launching StepId=%s on host %s, %d tasks: %s", t.id(), n.GetNode(), len(n.GetTasks()), stepio.Ranges(n.GetTasks()))
	}
}

// byControllerNow cancels a step that was created but cannot be run.
func (t *tasks) byControllerNow() {
	_, _ = t.r.client.CancelJobs(context.Background(), &msg.CancelJobsRequest{Ids: []string{t.id()}})
}

// feed forwards standard input, starting when all tasks have begun.
func (r *run) feed(ctx context.Context, t *tasks) {
	source := r.files.source(r)
	if source == nil {
		return
	}
	task := stepwire.All
	if r.files.in.only >= 0 {
		task = uint32(r.files.in.only)
	} else if r.req.Run.Pty {
		task = 0
	}
	go func() {
		select {
		case <-t.begun:
		case <-ctx.Done():
			return
		}
		if err := t.session.Input(source, task, t.input.Store); err != nil {
			r.env.Errorf("cannot read standard input: %v", err)
		}
	}()
}

// rawTerminal connects the terminal to task 0 with --pty.
func (r *run) rawTerminal(work *msg.StepWork) (restore func()) {
	if !r.req.Run.Pty {
		return func() {}
	}
	fd, ok := terminal.Of(r.env.Stdin)
	if !ok {
		return func() {}
	}
	work.Window = terminal.WindowSize(fd)
	back, err := terminal.Raw(fd)
	if err != nil {
		return func() {}
	}
	said := &terminal.Lines{W: r.env.Stderr}
	said.Raw.Store(true)
	r.env.Stderr = said
	return func() {
		back()
		said.Raw.Store(false)
	}
}

// follow waits for the end of the step.
func (t *tasks) follow(ctx context.Context) {
	ask := time.NewTimer(askAfter)
	defer ask.Stop()
	defer t.launch.Stop()
	defer t.settled()
	var late <-chan time.Time // for --wait
	first, done := t.first, t.done
	var grace <-chan time.Time
	var over *msg.StepRecord
	var job <-chan *msg.JobRecord // the controller ends an allocation without steps that nobody waits for
	for {
		select {
		case <-t.ended:
			return
		case <-t.gone:
			t.mu.Lock()
			t.worst = max(t.worst, stepio.ExitCode(uint32(syscall.SIGKILL)))
			t.mu.Unlock()
			return
		case <-done:
			done = nil
			t.tellAll()
			t.mu.Lock()
			clean := t.worst == 0 && !t.failed
			t.mu.Unlock()
			switch {
			case clean && t.r.req.Run.TaskEpilog != "": // its effects must be complete when srun returns
			case clean:
				return
			default:
				grace = time.After(lastWords)
			}
		case <-t.say.C:
			t.tellAll()
		case <-grace:
			if over != nil {
				t.settle(over)
			}
			return
		case s := <-t.r.sig.c:
			t.tellAll()
			t.handle(s)
		case <-first:
			first = nil
			if w := t.r.waitSeconds(); w > 0 {
				late = time.After(time.Duration(w) * time.Second)
			}
		case <-late:
			t.tellAll()
			t.r.infof("First task exited %ds ago", t.r.waitSeconds())
			t.report()
			t.r.infof("launch/slurm: _step_signal: Terminating StepId=%s", t.id())
			t.stop()
		case <-t.launch.C:
			t.late()
		case <-ask.C:
			if t.r.alloc != nil {
				job = t.r.alloc.Done(ctx)
			}
			t.inquire(ctx)
		case <-job:
			job = nil
			t.inquire(ctx)
		case <-t.asked:
			t.inquire(ctx)
		case node := <-t.silent:
			go t.find(ctx, node)
		case over = <-t.over:
			if grace == nil {
				grace = time.After(t.graceAfter(over))
			}
		}
	}
}

// graceAfter is how long connected nodes may take to report an end that the controller already knows.
func (t *tasks) graceAfter(*msg.StepRecord) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, n := range t.nodes {
		if !n.ended && !n.lost && t.session.Connected(i) {
			return graceEnded
		}
	}
	return 0
}

func (r *run) killOnBadExit() bool {
	switch r.req.Run.KillOnBadExit {
	case joboptions.Yes:
		return true
	case joboptions.No:
		return false
	}
	return r.conf.killOnBadExit
}

func (r *run) waitSeconds() uint32 {
	if r.req.Spec.NoKill { // the end of a task does not affect the others
		return 0
	}
	if r.req.Run.WaitGiven {
		return r.req.Run.Wait
	}
	return r.conf.waitS
}

// work describes the tasks for the nodes.
func (r *run) work() (*msg.StepWork, error) {
	environ, err := r.environment()
	if err != nil {
		return nil, err
	}
	spec, o := r.req.Spec, &r.req.Run
	w := &msg.StepWork{Env: environ, Dir: spec.WorkDir, Umask: submission.Umask(),
		Rlimits:  submission.Limits(r.req.Propagated(), r.req.PropagateGiven),
		OpenMode: spec.OpenMode, TaskProlog: program1(spec.WorkDir, o.TaskProlog), TaskEpilog: program1(spec.WorkDir, o.TaskEpilog),
		JobName: r.job.GetSpec().GetName(), User: r.job.GetSpec().GetUser(), Unbuffered: o.Unbuffered}
	if w.OpenMode == 0 && r.conf.fileAppend {
		w.OpenMode = msg.OpenAppend
	}
	if o.MPI == "pmi2" {
		w.PmiMapping = mapping(r.step.GetNodes())
	}
	if o.MPI == "pmix" {
		w.MpiByDefault = r.mpiByDefault
		for _, n := range r.step.GetNodes() {
			w.Places = append(w.Places, &msg.StepPlace{Node: n.GetNode(), Tasks: n.GetTasks()})
		}
	}
	r.files.tell(r, w)
	w.ByNode = r.bcast.byNode
	if !o.MultiProg {
		w.Programs = []*msg.StepProgram{{Argv: r.argv}}
		return w, nil
	}
	programs, err := readPrograms(r.req.Dir, r.argv[0], r.argv[1:], r.step.GetNumTasks())
	if err != nil {
		return nil, err
	}
	for _, p := range programs {
		w.Programs = append(w.Programs, &msg.StepProgram{Tasks: p.tasks, Argv: p.argv})
	}
	return w, nil
}

// program runs a program beside the step: that of --prolog or --epilog, or SrunProlog or SrunEpilog. Its arguments are the step's
// command.
func (r *run) program(option, configured string, work *msg.StepWork) {
	path := option
	if path == "" {
		path = configured
	}
	if path == "" || strings.EqualFold(path, "none") {
		return
	}
	cmd := exec.Command(path, r.argv...)
	cmd.Dir, cmd.Env = r.req.Dir, work.Env
	cmd.Stdout, cmd.Stderr = r.env.Stdout, r.env.Stderr
	err := cmd.Run()
	var pe *os.PathError
	if errors.As(err, &pe) {
		r.env.Infof("Access denied for %s: %s", path, reason(err))
	} else if err != nil {
		r.env.Errorf("%s: %v", path, err)
	}
}

// program1 returns the absolute path of such a program; "" for "none".
func program1(dir, path string) string {
	if path == "" || strings.EqualFold(path, "none") {
		return ""
	}
	return absolute(dir, path)
}

// environment returns the tasks' environment without the variables that nodes add.
func (r *run) environment() ([]string, error) {
	spec := r.req.Spec
	x := submission.ParseExport(spec.ExportEnv)
	e := submission.ExportedStep(r.env.Environ, x)
	if r.alloc != nil {
		for _, v := range submission.JobVariables(r.job, spec, r.env.ClusterName()) {
			if name, value, _ := strings.Cut(v, "="); !unsaid[name] {
				e.Set(name, value)
			}
		}
		e.Set("SLURM_SUBMIT_DIR", r.req.Dir)
		e.Set("SLURM_SUBMIT_HOST", command.ShortHostname())
		e.Set("SLURM_PRIO_PROCESS", itoa(submission.NiceValue()))
	}
	if spec.NtasksPerTres > 0 {
		e.Set("SLURM_NTASKS_PER_TRES", itoa(int(spec.NtasksPerTres)))
	}
	if spec.CpusPerTask > 0 {
		e.Set("SLURM_CPUS_PER_TASK", itoa(int(spec.CpusPerTask)))
	}
	if r.alloc == nil {
		if r.req.GivenBy("job-name") == joboptions.CommandLine {
			e.Set("SLURM_JOB_NAME", spec.Name)
		}
		e.Set("SLURM_DISTRIBUTION", r.distribution())
		e.Set("SRUN_DEBUG", itoa(max(0, 3+r.req.Verbose-boolInt(r.req.Quiet))))
		e.Set("SLURM_UMASK", umaskText())
	}
	if host, port, err := net.SplitHostPort(r.step.GetSpec().GetAddresses()[0]); err == nil {
		e.Set("SLURM_LAUNCH_NODE_IPADDR", host)
		e.Set("SLURM_SRUN_COMM_HOST", host)
		e.Set("SLURM_SRUN_COMM_PORT", port)
		e.Set("SLURM_STEP_LAUNCHER_PORT", port)
	}
	if r.bcast.libs != "" {
		path := r.bcast.libs
		if has := r.env.Getenv("LD_LIBRARY_PATH"); has != "" {
			path += ":" + has
		}
		e.Set("LD_LIBRARY_PATH", path)
	}
	if r.req.Run.Pty {
		if v, ok := r.env.LookupEnv("TERM"); ok {
			e.Set("TERM", v)
		}
	}
	return e.Vars, e.Check()
}

// unsaid are variables of an allocation that salloc sets but srun does not.
var unsaid = map[string]bool{"SLURM_MEM_PER_NODE": true, "SLURM_MEM_PER_CPU": true, "SLURM_MEM_PER_GPU": true, "SLURM_GPUS": true,
	"SLURM_GPUS_PER_TASK": true, "SLURM_GPU_BIND": true, "SLURM_CPUS_PER_GPU": true, "SLURM_NTASKS_PER_GPU": true}

// distribution returns the distribution of the step's tasks over its nodes.
func (r *run) distribution() string {
	kind, _, _ := strings.Cut(r.req.Spec.Distribution, "=")
	switch {
	case kind != "" && !strings.HasPrefix(kind, "*"):
		return kind
	case int(r.step.GetNumTasks()) > len(r.step.GetNodes()):
		return "block"
	}
	return "cyclic"
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Package srun is the command that runs tasks: as a step of the job in which it is called, otherwise in a job of its own.
package srun

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/joboptions"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/client/srun/about"
	"github.com/sluice-hpc/sluice/client/stepio"
	"github.com/sluice-hpc/sluice/client/submission"
	"github.com/sluice-hpc/sluice/client/terminal"
)

// Main runs a command as tasks of a job.
func Main(env *command.Env, args []string) int {
	hits, rest, err := env.Scan(joboptions.Names(joboptions.Srun), args, false)
	if err != nil {
		return env.UsageError(err, command.ExitUsage)
	}
	if text := joboptions.Info(hits, func() string { return about.Page().Help() }, about.Usage); text != "" {
		_, _ = io.WriteString(env.Stdout, text)
		return 0
	}
	r := &run{env: env, argv: rest, sender: &submission.Sender{Env: env}}
	if err := r.prepare(hits); err != nil {
		return env.Refuse(err)
	}
	if r.listed() {
		return 0
	}
	r.explain()
	return r.run(context.Background())
}

// run is one invocation of srun.
type run struct {
	env    *command.Env
	req    *joboptions.Request
	argv   []string
	sender *submission.Sender

	inside uint32 // the job of the step; 0 = a new job
	files  files
	bcast  broadcast
	conf   settings

	mpiByDefault bool // --mpi was not given

	alloc  *submission.Allocation
	listen *stepio.Listener
	wanted *msg.CreateStepRequest // the step
	client *client.Client
	job    *msg.JobRecord
	step   *msg.StepRecord
	sig    *signals
}

// prepare does everything before the first call.
func (r *run) prepare(hits []opt.Hit) error {
	dir, err := r.env.Getwd()
	if err != nil {
		return fmt.Errorf("cannot find the current directory: %w", err)
	}
	r.req = joboptions.New(joboptions.Srun, dir, r.env.Now(), os.ReadFile)
	given := jobGiven(r.env, hits)
	r.req.InJob = given != ""
	if err := r.req.FromEnvironment(r.lookup(given != "")); err != nil {
		return err
	}
	for _, h := range hits {
		if err := r.req.Apply(joboptions.CommandLine, h); err != nil {
			return err
		}
	}
	if err := r.req.Finish(); err != nil {
		return err
	}
	if r.req.Run.MPIList || r.req.Run.CPUBindHelp || r.req.GresHelp || r.req.HintHelp {
		return nil
	}
	if err := r.env.CheckClusters(r.req.Clusters); err != nil {
		return err
	}
	if given != "" {
		n, _ := strconv.ParseUint(r.req.Run.JobID, 10, 32)
		r.inside = uint32(n)
	}
	return r.check()
}

// jobGiven returns the job named by --jobid or SLURM_JOB_ID.
func jobGiven(env *command.Env, hits []opt.Hit) string {
	id := env.Getenv("SLURM_JOB_ID")
	for _, h := range hits {
		if joboptions.Options[h.Index].Long == "jobid" {
			id = h.Value
		}
	}
	return id
}

// lookup hides variables that describe the job rather than its steps.
func (r *run) lookup(inside bool) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := r.env.LookupEnv(name)
		switch {
		case inside && name == "SLURM_JOB_NAME", name == "SLURM_JOB_ID" && value == "":
			return "", false
		case inside && (name == "SLURM_NTASKS_PER_NODE" || name == "SLURM_JOB_NUM_NODES" || name == "SLURM_NNODES") && value == "0":
			return "", false
		}
		return value, ok
	}
}

// check validates command and files.
func (r *run) check() error {
	if err := joboptions.OneComponent(r.argv); err != nil {
		return err
	}
	if len(r.argv) == 0 && r.req.TestOnly && r.inside == 0 {
		r.argv = []string{r.env.Name} // nothing will be started
	}
	if len(r.argv) == 0 {
		return &opt.ValueError{Lines: []string{"No command given to execute."}, Exit: 1, Fatal: true,
			Hint: "name the program and its arguments after srun's options"}
	}
	if err := r.checkRelative(); err != nil {
		return err
	}
	if r.req.Run.MultiProg {
		if _, err := readPrograms(r.req.Dir, r.argv[0], r.argv[1:], max(r.req.Spec.NumTasks, 1)); err != nil {
			return err
		}
	}
	if err := r.checkBcast(); err != nil {
		return err
	}
	r.conf = readSettings(r.env.Getenv)
	if r.req.Run.MPI == "" {
		// An unknown MpiDefault is no reason to reject every srun of a site, since most start no MPI program. `sluice conf check`
		// reports it.
		r.mpiByDefault = true
		// mpirun is called in salloc's shell, which must not look like an MPI rank.
		if r.req.Run.MPI, _ = joboptions.MPIType(r.conf.mpi); r.req.Run.MPI == "" || r.req.Run.Interactive {
			r.req.Run.MPI = "none"
		}
	}
	if s := r.req.Spec; r.req.Run.Pty && s.StdIn+s.StdOut+s.StdErr != "" {
		return &opt.ValueError{Lines: []string{"--error/--input/--output are incompatible with --pty"}, Exit: 1,
			Hint: "with --pty all three are the terminal"}
	}
	if _, ok := terminal.Of(r.env.Stdin); r.req.Run.Pty && !ok {
		r.env.Errorf("ioctl(TIOCGWINSZ): Inappropriate ioctl for device")
		r.env.Errorf("Not using a pseudo-terminal, disregarding --pty option")
		r.req.Run.Pty = false
	}
	if r.req.Run.Pty && r.req.Spec.NumTasks == 0 && r.req.Spec.NtasksPerNode == 0 && r.inside != 0 && r.req.Run.Interactive {
		r.req.Spec.NumTasks = 1
	}
	if r.req.Spec.Name == "" {
		r.req.Spec.Name = filepath.Base(r.argv[0])
	}
	r.nodesAreTasks()
	r.tasksOfNodes()
	return r.files.plan(r)
}

// tasksOfNodes drops --ntasks-per-node if more tasks were requested than it allows. Like Slurm it warns.
func (r *run) tasksOfNodes() {
	s := r.req.Spec
	if s.NtasksPerNode == 0 || s.MinNodes == 0 || s.NumTasks <= s.NtasksPerNode*s.MinNodes || s.MaxNodes > s.MinNodes {
		return
	}
	r.req.Warnings = append(r.req.Warnings, fmt.Sprintf("can't honor --ntasks-per-node set to %d which doesn't match the requested "+
		"tasks %d with the number of requested nodes %d. Ignoring --ntasks-per-node.", s.NtasksPerNode, s.NumTasks, s.MinNodes))
	s.NtasksPerNode = 0
}

// checkRelative rejects nodes beyond the end of the allocation, if its size is known.
func (r *run) checkRelative() error {
	o, nodes := r.req.Run, max(r.req.Spec.MinNodes, 1)
	has, err := strconv.ParseUint(r.env.Getenv("SLURM_JOB_NUM_NODES"), 10, 32)
	if o.RelativeGiven && r.inside == 0 {
		return &opt.ValueError{Lines: []string{"--relative option invalid for job allocation request"}, Fatal: true, Exit: 1}
	}
	if !o.RelativeGiven || err != nil || uint64(o.Relative)+uint64(nodes) <= has {
		return nil
	}
	return &opt.ValueError{Lines: []string{fmt.Sprintf(
		"--relative and --nodes option incompatible with count of allocated nodes (%d+%d>%d)", o.Relative, nodes, has)}, Exit: 1}
}

// listed handles the options that only print information.
func (r *run) listed() bool {
	switch {
	case r.req.Run.MPIList:
		fmt.Fprint(r.env.Stdout, "MPI plugin types are...\n\tnone\n\tpmi2\n\tpmix\n")
		return true
	case r.req.Run.CPUBindHelp:
		fmt.Fprint(r.env.Stdout, cpuBindHelp)
		return true
	case r.req.HintHelp:
		fmt.Fprint(r.env.Stdout, joboptions.HintHelp)
		return true
	}
	return false
}

// explain prints warnings about adjusted options and, with -v, all options in effect.
func (r *run) explain() {
	for _, o := range r.req.NotAllowed {
		r.env.Errorf("Ignoring %s since it's not allowed by configuration (AllowSpecResourcesUsage = No)", o)
	}
	for _, w := range r.req.Warnings {
		if !r.req.Quiet {
			r.env.Infof("Warning: %s", w)
		}
	}
	if r.req.Verbose == 0 {
		return
	}
	for _, o := range r.req.Ignored {
		r.env.Infof("--%s is accepted but has no effect on this cluster", o)
	}
	const line = "-------------------- --------------------"
	r.env.Infof("defined options")
	r.env.Infof(line)
	r.req.Settings(func(name, value string) {
		switch {
		case name == "verbose":
			value = itoa(r.req.Verbose)
		case value == "":
			value = "set"
		}
		r.env.Infof("%-20s: %s", name, value)
	})
	r.env.Infof(line)
	r.env.Infof("end of defined options")
}

// infof prints unless -Q was given.
func (r *run) infof(format string, args ...any) {
	if !r.req.Quiet {
		r.env.Infof(format, args...)
	}
}

// run creates the step, and a job for it if necessary.
func (r *run) run(ctx context.Context) (exit int) {
	if r.inside == 0 && r.req.TestOnly {
		return r.testOnly(ctx)
	}
	r.sig = catch()
	defer r.sig.release()
	if r.inside != 0 {
		return r.runStep(ctx)
	}
	return r.runJob(ctx)
}

// refusedStep reports why the step was not created.
func (r *run) refusedStep(err error) int {
	var i *submission.Interrupted
	if errors.As(err, &i) {
		r.infof("Cancelled pending job step with signal %d", int(i.Signal))
		r.env.Errorf("Unable to create step for job %d: Job/step already completing or completed", r.jobID())
		return r.env.ErrorExit()
	}
	text, more := command.Phrase(err)
	var busy *busyError
	if errors.As(err, &busy) {
		more = command.Diagnosis(busy.problem)
		if n, bad := strconv.Atoi(r.env.Getenv("SLURM_EXIT_IMMEDIATE")); bad == nil && n > 0 && n < 256 {
			r.env.Errorf("Unable to create step for job %d: %s", r.jobID(), text)
			return n
		}
	}
	code := msg.Code(client.ProblemOf(err).GetCode())
	if r.alloc == nil && (code == msg.CodeInvalidJobID || code == msg.CodeAlreadyDone || code == msg.CodeFinished) {
		r.env.Errorf("Unable to confirm allocation for job %d: %s", r.jobID(), text)
		r.env.Infof("Check SLURM_JOB_ID environment variable. Expired or invalid job %d", r.jobID())
	} else if lead := client.ProblemOf(err).GetLead(); lead != "" && code == msg.CodeNodeConfig { // Slurm prints only that
		r.env.Errorf("%s", lead)
		return r.env.ErrorExit()
	} else {
		if lead := client.ProblemOf(err).GetLead(); lead != "" {
			r.env.Errorf("%s", lead)
		}
		r.env.Errorf("Unable to create step for job %d: %s", r.jobID(), text)
	}
	if more != "" {
		r.env.Errorf("%s", more)
	}
	return r.env.ErrorExit()
}

func (r *run) jobID() uint32 {
	if r.alloc != nil {
		return r.alloc.ID
	}
	return r.inside
}

const cpuBindHelp = `CPU bind options:
    --cpu-bind=         Bind tasks to CPUs
        q[uiet]         quietly bind before task runs (default)
        v[erbose]       verbosely report binding before task runs
        no[ne]          don't bind tasks to CPUs (default)
        rank            bind by task rank
        map_cpu:<list>  specify a CPU ID binding for each task
                        where <list> is <cpuid1>,<cpuid2>,...<cpuidN>
        mask_cpu:<list> specify a CPU ID binding mask for each task
                        where <list> is <mask1>,<mask2>,...<maskN>
        rank_ldom       bind task by rank to CPUs in a NUMA locality domain
        map_ldom:<list> specify a NUMA locality domain ID for each task
                        where <list> is <ldom1>,<ldom2>,...<ldomN>
        mask_ldom:<list>specify a NUMA locality domain ID mask for each task
                        where <list> is <ldom1>,<ldom2>,...<ldomN>
        sockets         auto-generated masks bind to sockets
        cores           auto-generated masks bind to cores
        threads         auto-generated masks bind to threads
        ldoms           auto-generated masks bind to NUMA locality domains
        help            show this help message
`

// words joins the arguments.
func words(argv []string) string { return strings.Join(argv, " ") }

// Package sbcast is the command that copies a file to the nodes of a job.
package sbcast

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/bcast"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/client/sbcast/about"
	"github.com/sluice-hpc/sluice/client/submission"
	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/conf/jobid"
	"github.com/sluice-hpc/sluice/internal/version"
)

// exitFatal is the exit code of a real sbcast that cannot begin.
const exitFatal = 255

// Main copies a file.
func Main(env *command.Env, args []string) int {
	hits, rest, err := env.Scan(command.NamesOf(about.Options[:]), args, true)
	if err != nil {
		return env.UsageError(err, 1)
	}
	for _, h := range hits {
		switch about.Options[h.Index].Long {
		case "help":
			_, _ = io.WriteString(env.Stdout, about.Page().Help())
			return 0
		case "usage":
			_, _ = io.WriteString(env.Stdout, about.Usage)
			return 0
		case "version":
			_, _ = io.WriteString(env.Stdout, version.Interface())
			return 0
		}
	}
	s := &sbcast{env: env, blockBytes: defaultBlock, exclude: bcast.ExcludedLibraries}
	s.read(hits)
	if exit := s.names(rest); exit != 0 {
		return exit
	}
	return s.run(context.Background())
}

const defaultBlock = 8 << 20

// sbcast is one invocation.
type sbcast struct {
	env                             *command.Env
	compress, force, preserve, libs bool
	exclude                         string
	fanout, timeoutS, verbose       int
	blockBytes                      int64
	job                             string
	given                           bool // a job id was given
	source, dest                    string
}

func (s *sbcast) read(hits []opt.Hit) {
	s.job, s.given = s.env.LookupEnv("SLURM_JOB_ID")
	for i := range about.Options {
		o := &about.Options[i]
		if v, ok := s.env.LookupEnv(o.Env); o.Env != "" && ok {
			s.set(o.Long, o.Env, v, v != "" || o.Long != "send-libs")
		}
	}
	for _, h := range hits {
		s.set(about.Options[h.Index].Long, "--"+about.Options[h.Index].Long, h.Value, h.Given)
	}
}

// set applies an option or its variable; as names which.
func (s *sbcast) set(option, as, value string, given bool) {
	switch option {
	case "compress":
		s.compress = bcast.Compress(s.env, value, given)
	case "exclude":
		s.exclude = value
	case "fanout":
		s.fanout = atoi(value)
	case "force":
		s.force = true
	case "jobid":
		s.job, s.given = value, true
	case "preserve":
		s.preserve = true
	case "send-libs":
		switch libs, ok := bcast.YesNo(value); {
		case !given:
			s.libs = true
		case ok:
			s.libs = libs
		default:
			s.env.Errorf("Ignoring unrecognized %s value '%s'", as, value)
		}
	case "size":
		n, ok := blockSize(value)
		if !ok {
			fmt.Fprintln(s.env.Stderr, "size specification is invalid, ignored")
		}
		s.blockBytes = n
	case "timeout":
		s.timeoutS = atoi(value)
	case "verbose":
		s.verbose++
	}
}

// atoi is that of the C library, with which Slurm reads these numbers: invalid ones are 0.
func atoi(s string) int {
	end := 0
	for end < len(s) && s[end] >= '0' && s[end] <= '9' && end < len("999999999") {
		end++
	}
	n, _ := strconv.Atoi(s[:end])
	return n
}

// blockSize reads --size.
func blockSize(s string) (int64, bool) {
	shift := 0
	for suffix, bits := range map[string]int{"k": 10, "m": 20} {
		if rest, ok := strings.CutSuffix(strings.ToLower(s), suffix); ok {
			s, shift = rest, bits
			break
		}
	}
	n, err := strconv.ParseInt(s, 10, 32)
	if n <<= shift; err != nil || n < 0 || n > math.MaxInt32 {
		return 0, false
	}
	return n, true
}

// names reads the two file names. Like a real sbcast it reports errors without the command's name in front.
func (s *sbcast) names(words []string) (exit int) {
	if len(words) != 2 {
		fmt.Fprintf(s.env.Stderr, "Need two file names, have %d names\nTry \"sbcast --help\" for more information\n", len(words))
		return 1
	}
	s.source, s.dest = words[0], words[1]
	if !s.given {
		s.env.Errorf("Need a job id to run this command.  Run from within a Slurm job or use the --jobid option.")
		return 1
	}
	if s.dest == "" || strings.HasSuffix(s.dest, "/") {
		s.env.Errorf("Target filename cannot be a directory.")
		return 1
	}
	return 0
}

func (s *sbcast) run(ctx context.Context) int {
	s.describe()
	file, err := bcast.Open(s.source)
	if err != nil {
		s.env.Errorf("%v", err)
		return exitFatal
	}
	defer file.Close()
	s.describeFile(file)
	dir, err := s.env.Getwd()
	if err != nil {
		s.env.Errorf("cannot find the current directory: %v", err)
		return exitFatal
	}
	to := s.dest
	if !filepath.IsAbs(to) {
		to = filepath.Join(dir, to)
	}
	job := &bcast.Job{Env: s.env, Sender: &submission.Sender{Env: s.env}, Ports: bcast.Ports(s.env.Getenv), Fanout: s.fanout,
		Timeout: time.Duration(s.timeoutS) * time.Second, Verbose: s.verbose > 0}
	if exit := s.find(ctx, job); exit != 0 {
		return exit
	}
	defer job.Client.Close()
	if s.verbose > 0 {
		s.env.Infof("jobid      = %s", s.job)
		s.env.Infof("node_list  = %s", hostlist.FoldSorted(slices.Sorted(slices.Values(job.Nodes))))
	}
	c := make(chan os.Signal, 4)
	signal.Notify(c, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(c)
	job.Signals = c
	whole := &bcast.File{Path: s.source, From: file, To: to, Force: s.force, Preserve: s.preserve, Compress: s.compress}
	if err = job.Copy(ctx, whole); err == nil && s.libs {
		_, err = job.Libraries(ctx, whole, s.exclude)
	}
	return s.exit(err)
}

// exit is the exit code: as for a real sbcast, the errno of a failed node.
func (s *sbcast) exit(err error) int {
	var failure *bcast.Failure
	var interrupted *submission.Interrupted
	switch {
	case err == nil:
		return 0
	case errors.As(err, &failure):
		return failure.Errno
	case errors.As(err, &interrupted):
		return 1
	}
	if p := client.ProblemOf(err); msg.Code(p.GetCode()) == msg.CodeAccessDenied {
		s.env.Errorf("Slurm job %s lookup error: Invalid user id", s.job)
		s.env.Errorf("%s", command.Diagnosis(p))
		return exitFatal
	}
	return s.lookupFailed(err)
}

// find looks up the nodes of the job or step.
func (s *sbcast) find(ctx context.Context, to *bcast.Job) (exit int) {
	s.job = strings.TrimSuffix(s.job, "+0") // valid for any job
	if strings.Contains(s.job, "+") {
		s.env.Errorf("--jobid=%s: heterogeneous jobs are not supported", s.job)
		return exitFatal
	}
	id, bad := jobid.Parse(s.job)
	if bad != nil || id.Job == 0 || id.Tasks != nil || id.AllTasks {
		s.env.Errorf("Slurm job 0 lookup error: Invalid job id specified")
		s.env.Errorf("--jobid=%s: expected 12 or 12.0", s.job)
		return exitFatal
	}
	c, err := to.Sender.Dial(ctx)
	if err != nil {
		return s.lookupFailed(err)
	}
	to.Client, to.ID = c, id.Job
	if to.Nodes, err = nodes(ctx, c, id); err != nil {
		c.Close()
		return s.lookupFailed(err)
	}
	return 0
}

func (s *sbcast) lookupFailed(err error) int {
	text, more := command.Phrase(err)
	s.env.Errorf("Slurm job %s lookup error: %s", s.job, text)
	if more != "" {
		s.env.Errorf("%s", more)
	}
	return exitFatal
}

// nodes returns the nodes of a job, or of one of its steps.
func nodes(ctx context.Context, c *client.Client, id jobid.ID) (names []string, err error) {
	reply, err := c.WaitAllocation(ctx, &msg.WaitAllocationRequest{JobId: id.Job})
	if err != nil {
		return nil, err
	}
	job := reply.GetJob()
	for _, a := range job.GetAlloc() {
		if !a.GetEnded() {
			names = append(names, a.GetNode())
		}
	}
	switch {
	case job.GetState() == msg.JobState_JOB_PENDING:
		return nil, &opt.ValueError{Lines: []string{"Job is pending execution"}}
	case submission.Over(job) || len(names) == 0:
		return nil, &opt.ValueError{Lines: []string{"Job/step already completing or completed"}}
	case id.Step == jobid.StepNone, id.Step == jobid.StepBatch && !job.GetSpec().GetInteractive(), id.Step == jobid.StepExtern:
		return names, nil
	}
	stream, err := c.Steps(ctx, &msg.StepsRequest{Ids: []string{id.String()}, Filter: &msg.JobsRequest{AllStates: true}})
	for err == nil {
		var page *msg.StepsReply
		if page, err = stream.Recv(); err != nil {
			break
		}
		for _, step := range page.GetSteps() {
			if step.GetStepId() == id.Step {
				return hostlist.Expand(step.GetNodeList())
			}
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, err
	}
	return nil, &opt.ValueError{Lines: []string{"Invalid job id specified"}}
}

// describe prints the options in effect, with -v.
func (s *sbcast) describe() {
	if s.verbose == 0 {
		return
	}
	const line = "-----------------------------"
	compress := 0
	if s.compress {
		compress = 1
	}
	s.env.Infof("%s", line)
	s.env.Infof("block_size = %d", s.blockBytes)
	s.env.Infof("compress   = %d", compress)
	s.env.Infof("exclude    = %s", s.exclude)
	s.env.Infof("force      = %v", s.force)
	s.env.Infof("fanout     = %d", s.fanout)
	s.env.Infof("preserve   = %v", s.preserve)
	s.env.Infof("send_libs  = %v", s.libs)
	s.env.Infof("timeout    = %d", s.timeoutS)
	s.env.Infof("verbose    = %d", s.verbose)
	s.env.Infof("source     = %s", s.source)
	s.env.Infof("dest       = %s", s.dest)
	s.env.Infof("%s", line)
}

func (s *sbcast) describeFile(f *os.File) {
	info, err := f.Stat()
	if err != nil {
		return
	}
	if info.Size() == 0 {
		s.env.Errorf("Warning: file `%s` is empty.", s.source)
	}
	if s.verbose > 0 {
		bcast.Describe(s.env, info)
	}
}

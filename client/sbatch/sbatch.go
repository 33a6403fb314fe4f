// Package sbatch is the command that submits a batch script. Its options are in client/joboptions (table.go).
//
// A process that submits one job lives for two milliseconds, so the package links only what is cheap to set up.
package sbatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client/batchscript"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/joboptions"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/client/submission"
	"github.com/sluice-hpc/sluice/internal/passwd"
)

// Main submits a batch script: a file, standard input, or the command of --wrap.
//
// Options come from the script, then the environment, then argv, each overriding the previous ones. The controller is not contacted
// before all local checks have passed.
func Main(env *command.Env, args []string) int {
	hits, rest, err := env.Scan(joboptions.Names(joboptions.Sbatch), args, false)
	if err != nil {
		return env.UsageError(err, command.ExitUsage)
	}
	if text := joboptions.Info(hits, func() string { return Page().Help() }, usage); text != "" {
		_, _ = io.WriteString(env.Stdout, text)
		return 0
	}
	s := &job{env: env, hits: hits, rest: rest}
	if err := s.prepare(); err != nil {
		return env.Refuse(err)
	}
	if s.req.GresHelp || s.req.HintHelp {
		return s.listChoices()
	}
	s.explain()
	return s.submit(context.Background())
}

// job is one invocation of sbatch.
type job struct {
	env  *command.Env
	hits []opt.Hit
	rest []string

	req     *joboptions.Request
	script  []byte
	name    string // the script's name for messages
	path    string // absolute, "" for stdin and --wrap
	environ []string
	unread  []string // directives of other batch systems without an equivalent
	id      string   // request id
}

// prepare does everything up to the call: it reads the script and merges the sources.
func (s *job) prepare() error {
	dir, err := s.env.Getwd()
	if err != nil {
		return fmt.Errorf("cannot find the current directory: %w", err)
	}
	s.req = joboptions.New(joboptions.Sbatch, dir, s.env.Now(), os.ReadFile)
	// Check argv before reading the script, which may come from a terminal. The result is discarded, because argv is applied last.
	if err := s.apply(joboptions.CommandLine, s.hits); err != nil {
		return err
	}
	work := s.req.Spec.WorkDir // of --chdir, its tilde expanded
	s.req = joboptions.New(joboptions.Sbatch, dir, s.env.Now(), os.ReadFile)
	if err := s.readScript(dir, work); err != nil {
		return err
	}
	if err := batchscript.Check(s.script, s.rest); err != nil {
		return err
	}
	if err := s.merge(); err != nil {
		return err
	}
	return s.complete()
}

func (s *job) last(long string) (value string, given bool) {
	for _, h := range s.hits {
		if joboptions.Options[h.Index].Long == long {
			value, given = h.Value, true
		}
	}
	return value, given
}

func (s *job) readScript(dir, work string) error {
	text, wrapped := s.last("wrap")
	if err := joboptions.OneComponent(s.rest); err != nil {
		return err
	}
	switch {
	case wrapped && len(s.rest) > 0:
		return &opt.ValueError{Lines: []string{"Script arguments not permitted with --wrap option"}, Exit: 1,
			Hint: fmt.Sprintf("omit --wrap, or %q", s.rest[0])}
	case wrapped:
		s.name, s.script = "wrap", batchscript.Wrap(text)
		return nil
	case len(s.rest) == 0:
		s.name = "sbatch"
		if command.IsTerminal(s.env.Stdin) {
			s.env.Infof("no script was given: reading one from the terminal until Ctrl-D")
		}
		data, err := io.ReadAll(io.LimitReader(s.env.Stdin, batchscript.MaxBytes+1))
		if err != nil {
			return fmt.Errorf("cannot read the script from standard input: %w", err)
		}
		s.script = data
		return nil
	}
	return s.readFile(dir, work)
}

func (s *job) readFile(dir, work string) error {
	s.name = s.rest[0]
	path, f, why := openScript(s.name, s.searchDirs(dir, work), s.env.Getenv("PATH"))
	if f == nil {
		return &opt.ValueError{Lines: []string{"Unable to open file " + path}, Hint: why}
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, batchscript.MaxBytes+1))
	if err != nil {
		return &opt.ValueError{Lines: []string{"Unable to read file " + s.name}, Hint: err.Error()}
	}
	s.script, s.path = data, path
	return nil
}

// searchDirs returns the directories to search for the script: that of --chdir before the current one (sbatch(1), SCRIPT PATH
// RESOLUTION).
func (s *job) searchDirs(dir, work string) []string {
	chdir, given := s.last("chdir")
	if !given {
		return []string{dir}
	}
	if work != "" {
		chdir = work
	}
	if !filepath.IsAbs(chdir) {
		chdir = filepath.Join(dir, chdir)
	}
	return []string{chdir, dir}
}

// openScript searches for the script in dirs, then in PATH unless its name has a slash. If it fails, f is nil, and path is the
// unreadable file or the name.
func openScript(name string, dirs []string, searchPath string) (path string, f *os.File, why string) {
	near := len(dirs) // errors of the directories in PATH are not reported
	if filepath.IsAbs(name) {
		dirs = []string{""}
	} else if !strings.Contains(name, "/") {
		dirs = append(dirs, filepath.SplitList(searchPath)...)
	}
	path = name
	for i, dir := range dirs {
		at := filepath.Join(dir, name)
		f, err := os.Open(at)
		if err == nil {
			if st, serr := f.Stat(); serr == nil && !st.IsDir() {
				return at, f, ""
			}
			f.Close()
			err = errors.New(at + " is a directory")
		}
		if os.IsPermission(err) && why == "" && i < near {
			path = at
		}
		if !os.IsNotExist(err) && why == "" && i < near {
			why = err.Error()
		}
	}
	if why == "" {
		why = name + ": no such file"
		if dirs[0] != "" {
			why += " in " + strings.Join(dirs[:near], " or ")
		}
		if len(dirs) > near {
			why += ", nor in PATH"
		}
	}
	return path, nil, why
}

// merge applies script, environment and argv.
func (s *job) merge() error {
	directives, err := batchscript.Directives(s.name, s.script)
	if err != nil {
		return fatalFault(err)
	}
	names := joboptions.Names(joboptions.Sbatch)
	for _, d := range append(directives, s.translated()...) { // observed: those of other systems win
		where := fmt.Sprintf("in line %d of %s", d.Line, s.name)
		for _, word := range d.Words {
			s.debug(3, "debug2: Found in script, argument \"%s\"", word)
		}
		hits, rest, err := opt.Scan(names, d.Words, false)
		if hint := cmp.Or(opt.Misread(names, hits, rest), stray(d.Words, rest)); hint != "" {
			s.env.Misread(hint + " (" + where + ")")
		}
		if err != nil {
			return joboptions.At(err, where)
		}
		if err := s.apply(joboptions.Script, hits); err != nil {
			return joboptions.At(err, where)
		}
		if len(rest) > 0 && joboptions.Separator(rest[0]) {
			return &opt.ValueError{Lines: []string{"heterogeneous jobs are not supported"}, Exit: 1,
				Hint: fmt.Sprintf("%s separates their components (%s): submit each component as its own job", rest[0], where)}
		}
		if len(rest) > 0 { // last, as in Slurm
			return &opt.ValueError{Lines: []string{"Invalid directive found in batch script: " + rest[0]}, Exit: command.ExitUsage,
				Hint: where}
		}
	}
	if err := s.req.FromEnvironment(s.env.LookupEnv); err != nil {
		return err
	}
	if err := s.apply(joboptions.CommandLine, s.hits); err != nil {
		return err
	}
	return s.req.Finish()
}

// stray guesses what is wrong with words of a directive that belong to no option.
func stray(words, rest []string) string {
	switch {
	case slices.Contains(words, "="):
		return "write an option and its value without spaces around the equals sign: --time=5"
	case len(rest) > 0 && rest[0] == words[0] && joboptions.IsLong(joboptions.Sbatch, rest[0]):
		return "options begin with two hyphens: --" + rest[0]
	}
	return ""
}

// translated returns the directives of other batch systems, unless these are to be ignored.
func (s *job) translated() []batchscript.Directive {
	if _, given := s.last("ignore-pbs"); given {
		return nil
	}
	if _, set := s.env.LookupEnv("SBATCH_IGNORE_PBS"); set {
		return nil
	}
	var found []batchscript.Directive
	found, s.unread = batchscript.Translate(s.script)
	return found
}

// fatalFault makes the error fatal, as Slurm does for a directive that cannot be split into words.
func fatalFault(err error) error {
	if f, ok := err.(*batchscript.Fault); ok {
		return &opt.ValueError{Lines: f.Lines, Hint: f.Hint, Exit: 1, Fatal: true}
	}
	return err
}

func (s *job) apply(source joboptions.Source, hits []opt.Hit) error {
	for _, h := range hits {
		if err := s.req.Apply(source, h); err != nil {
			return err
		}
	}
	return nil
}

// complete adds properties of the submitting process to the specification.
func (s *job) complete() error {
	spec := s.req.Spec
	if spec.Name == "" {
		spec.Name = filepath.Base(s.name)
	}
	spec.Command = "(null)"
	if s.path != "" {
		spec.Command = s.path
		spec.Args = s.rest[1:]
	}
	spec.Umask = s.umask()
	spec.Rlimits = submission.Limits(s.req.Propagated(), s.req.PropagateGiven)
	spec.AllocNode = command.ShortHostname()
	spec.AllocSid = submission.SessionID()
	spec.SubmitLine = strings.Join(s.env.Args, " ")
	if err := s.checkClusters(); err != nil {
		return err
	}
	if err := s.identity(); err != nil {
		return err
	}
	if err := s.buildEnvironment(); err != nil {
		return err
	}
	var err error
	s.id, err = submission.RandomID()
	return err
}

// umask returns the mask of this process, or SLURM_UMASK (sbatch(1)).
func (s *job) umask() uint32 {
	if n, err := strconv.ParseUint(s.env.Getenv("SLURM_UMASK"), 8, 32); err == nil && n <= 0o777 {
		return uint32(n)
	}
	return submission.Umask()
}

// checkClusters accepts -M only for the one cluster.
func (s *job) checkClusters() error {
	return s.env.CheckClusters(s.req.Clusters)
}

// identity sets uid and gid for --uid and --gid, which only root may use for others.
func (s *job) identity() error {
	if s.req.UID == "" && s.req.GID == "" {
		return nil
	}
	user := passwd.Self()
	if s.req.UID != "" {
		uid, ok := passwd.UID(s.req.UID)
		if !ok {
			return &opt.ValueError{Lines: []string{"Invalid --uid specification"}, Exit: command.ExitUsage,
				Hint: fmt.Sprintf("there is no user %q here", s.req.UID)}
		}
		if user, ok = passwd.User(s.req.UID); !ok {
			user = passwd.Account{Name: s.req.UID, UID: uid, GID: uid, Home: "/", Shell: "/bin/sh"}
		}
	}
	if s.req.GID != "" {
		gid, ok := passwd.GID(s.req.GID)
		if !ok {
			return &opt.ValueError{Lines: []string{"Invalid --gid specification"}, Exit: command.ExitUsage,
				Hint: fmt.Sprintf("there is no group %q here", s.req.GID)}
		}
		user.GID = gid
	}
	if os.Getuid() != 0 && (user.UID != uint32(os.Getuid()) || user.GID != uint32(os.Getgid())) {
		which := "uid"
		if s.req.UID == "" {
			which = "gid"
		}
		return &opt.ValueError{Lines: []string{"--" + which + " only permitted by root user"}, Exit: command.ExitUsage,
			Hint: fmt.Sprintf("you are uid %d", os.Getuid())}
	}
	s.req.Spec.Uid, s.req.Spec.Gid, s.req.Spec.User = user.UID, user.GID, user.Name
	return nil
}

// target is the account under which the job runs.
func (s *job) target() passwd.Account {
	if s.req.UID != "" {
		if a, ok := passwd.User(s.req.UID); ok {
			return a
		}
	}
	return passwd.Self()
}

// buildEnvironment builds the job's environment (sbatch(1), --export, --export-file, --get-user-env).
func (s *job) buildEnvironment() error {
	spec := s.req.Spec
	if s.req.Given("export-file") {
		spec.ExportEnv = "" // the file replaces it
		vars, err := readExportFile(s.req.ExportFile)
		if err != nil {
			return &opt.ValueError{Lines: []string{"Could not open user environment file " + s.req.ExportFile}, Hint: err.Error()}
		}
		return s.useEnvironment(submission.NewEnvironment(vars))
	}
	x := submission.ParseExport(spec.ExportEnv)
	e := submission.Exported(s.env.Environ, x)
	if x.Login || s.req.UserEnvGiven {
		vars, err := loginEnvironment(context.Background(), s.target(), s.req.UserEnv)
		if err != nil && !s.req.Quiet && (s.req.UserEnvGiven || s.req.Verbose > 0) { // a real sbatch is silent with --export=NONE
			s.env.Infof("%v; only HOME, USER, SHELL and PATH are set", err)
		}
		e.Add(vars)
		e.Set("SLURM_GET_USER_ENV", "1")
	}
	return s.useEnvironment(e)
}

// useEnvironment adds sbatch's own variables (sbatch(1), OUTPUT ENVIRONMENT VARIABLES).
func (s *job) useEnvironment(e *submission.Environment) error {
	spec := s.req.Spec
	e.Set("SLURM_SUBMIT_DIR", s.req.Dir)
	e.Set("SLURM_SUBMIT_HOST", spec.AllocNode)
	e.Set("SLURM_PRIO_PROCESS", fmt.Sprint(submission.NiceValue()))
	e.Set("SLURM_UMASK", fmt.Sprintf("%04o", spec.Umask))
	if s.req.Given("export") && !s.req.Given("export-file") && !strings.EqualFold(spec.ExportEnv, "ALL") {
		e.Set("SLURM_EXPORT_ENV", spec.ExportEnv)
	}
	if n := s.req.GPUsPerNode(); n != "" {
		e.Set("SLURM_GPUS_PER_NODE", n)
	}
	s.environ = e.Vars
	return e.Check()
}

// readExportFile reads NAME=value, each terminated by NUL, from a file or from a descriptor from 3 up.
func readExportFile(name string) ([]string, error) {
	var f *os.File
	if fd, ok := passwd.Decimal([]byte(name)); ok {
		if fd < 3 {
			return nil, fmt.Errorf("descriptor %d is standard input or output; use 3 or higher", fd)
		}
		f = os.NewFile(uintptr(fd), "descriptor "+name)
	} else {
		var err error
		if f, err = os.Open(name); err != nil {
			return nil, err
		}
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, submission.MaxEnvBytes+1))
	if err != nil {
		return nil, err
	}
	return strings.Split(string(data), "\x00"), nil
}

// listChoices handles --gres=help and --hint=help.
func (s *job) listChoices() int {
	if s.req.HintHelp {
		fmt.Fprint(s.env.Stdout, joboptions.HintHelp)
		return 1 // as in Slurm: no job was submitted
	}
	return s.listGres(context.Background())
}

// explain prints the options in effect (-v) and those without effect.
func (s *job) explain() {
	for _, o := range s.req.NotAllowed {
		s.env.Errorf("Ignoring %s since it's not allowed by configuration (AllowSpecResourcesUsage = No)", o)
	}
	for _, w := range s.req.Warnings {
		if !s.req.Quiet { // in the words of a real sbatch
			s.env.Infof("Warning: %s", w)
		}
	}
	for _, o := range s.req.Ignored {
		if !s.quiet() {
			s.env.Infof("--%s is accepted but has no effect on this cluster", o)
		}
	}
	s.overlooked()
	if len(s.unread) > 0 && !s.quiet() {
		s.env.Infof("%s is not read; write it as an #SBATCH line, or give --ignore-pbs", strings.Join(s.unread, ", "))
	}
	if s.req.Verbose == 0 {
		return
	}
	const line = "-------------------- --------------------"
	s.env.Infof("defined options")
	s.env.Infof(line)
	s.req.Settings(func(name, value string) {
		if value == "" {
			value = "set"
		}
		s.env.Infof("%-20s: %s", name, value)
	})
	s.env.Infof(line)
	s.env.Infof("end of defined options")
	if s.req.PropagateGiven { // otherwise PropagateResourceLimits of slurm.conf decides
		for _, l := range s.req.Spec.Rlimits {
			s.debug(2, "debug:  propagating RLIMIT_%s=%d", joboptions.RlimitName(l.Resource), l.Soft)
		}
	}
	s.debug(2, "debug:  propagating SLURM_PRIO_PROCESS=%d", submission.NiceValue())
	s.debug(2, "debug:  propagating UMASK=%04o", s.req.Spec.Umask)
}

// debug prints messages of a real sbatch for the given number of -v on the command line, unless -Q was given.
func (s *job) debug(level int, format string, args ...any) {
	for _, h := range s.hits {
		if joboptions.Options[h.Index].Long == "verbose" {
			level--
		}
	}
	if _, quiet := s.last("quiet"); level <= 0 && !quiet {
		s.env.Infof(format, args...)
	}
}

// quiet reports whether to print nothing about accepted options. A program that requested the bare id may read both streams as one.
func (s *job) quiet() bool {
	return s.req.Quiet || s.req.Parsable && s.req.Verbose == 0 && !command.IsTerminal(s.env.Stderr)
}

// overlooked reports options that the user wrote but sbatch did not read. Directives after the first command are certainly lost.
// The others may be intentional (a comment, an argument of the script), so they are reported only on a terminal.
func (s *job) overlooked() {
	if s.quiet() || s.req.WrapGiven {
		return
	}
	terminal := command.IsTerminal(s.env.Stderr)
	o := batchscript.Overlook(s.script)
	if len(o.Late) > 0 {
		s.env.Infof("#SBATCH in %s of %s is not read, because it follows the first command in line %d; move it up",
			batchscript.Lines(o.Late), s.name, o.First)
	}
	if line, name := batchscript.Missing(s.script); line > 0 {
		s.env.Infof("line %d of %s calls %s, which Sluice does not have", line, s.name, name)
	}
	if !terminal {
		return
	}
	if len(o.Almost) > 0 {
		s.env.Infof("%s of %s is a comment: a directive starts with #SBATCH at the beginning of the line, in capitals, without a space",
			batchscript.Lines(o.Almost), s.name)
	}
	for _, word := range s.rest[min(1, len(s.rest)):] {
		if long, ok := strings.CutPrefix(word, "--"); ok && joboptions.IsLong(joboptions.Sbatch, long) {
			s.env.Infof(
				"%s follows the script's name, so it is passed to the script and not to sbatch; put sbatch's options before the name", word)
			return
		}
	}
}

func (s *job) request() *msg.SubmitRequest {
	return &msg.SubmitRequest{RequestId: s.id, Spec: s.req.Spec, Script: s.script, Env: s.environ, TestOnly: s.req.TestOnly}
}

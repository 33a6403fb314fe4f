package sbatch

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/sluice-hpc/sluice/client/batchscript"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/joboptions"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/client/submission"
	"github.com/sluice-hpc/sluice/internal/passwd"
)

// CronEntry is one entry of a crontab: the options of its #SCRON lines, the variables set above it, and its command.
type CronEntry struct {
	Options []string // texts after #SCRON, in order
	Vars    []string // NAME=value
	Command string
}

// CronJob creates the submission of an entry. It runs in its owner's home with an environment like cron's: nothing from the shell
// that calls scrontab, which may be different every time.
func CronJob(env *command.Env, owner passwd.Account, e CronEntry) (*msg.SubmitRequest, error) {
	word, _, _ := strings.Cut(strings.TrimSpace(e.Command), " ")
	s := &job{env: env, name: "scrontab", req: joboptions.New(joboptions.Sbatch, owner.Home, env.Now(), os.ReadFile)}
	s.req.Home = owner.Home
	if err := s.cronOptions(e.Options); err != nil {
		return nil, err
	}
	spec := s.req.Spec
	if spec.Name == "" {
		spec.Name = filepath.Base(word)
	}
	spec.Command = "(null)"
	spec.Umask = submission.Umask()
	spec.AllocNode = command.ShortHostname()
	s.script = []byte("#!/bin/sh\n# made by scrontab\n" + e.Command + "\n")
	if err := batchscript.Check(s.script, nil); err != nil {
		return nil, err
	}
	vars := submission.NewEnvironment([]string{"SHELL=/bin/sh", "HOME=" + owner.Home, "LOGNAME=" + owner.Name, "USER=" + owner.Name,
		"PATH=/usr/local/bin:/usr/bin:/bin"})
	for _, v := range e.Vars {
		name, _, _ := strings.Cut(v, "=")
		vars.Put(name, v)
	}
	return &msg.SubmitRequest{Spec: spec, Script: s.script, Env: vars.Vars}, nil
}

// cronOptions reads #SCRON lines like #SBATCH lines.
func (s *job) cronOptions(lines []string) error {
	script := "#!/bin/sh\n"
	for _, l := range lines {
		script += "#SBATCH " + l + "\n"
	}
	directives, err := batchscript.Directives(s.name, []byte(script))
	if err != nil {
		return err
	}
	for _, d := range directives {
		hits, rest, err := opt.Scan(joboptions.Names(joboptions.Sbatch), d.Words, false)
		if err != nil {
			return err
		}
		if len(rest) > 0 {
			return &opt.ValueError{Lines: []string{"Invalid directive found in crontab: " + rest[0]}, Exit: 1}
		}
		if err := s.apply(joboptions.Script, hits); err != nil {
			return err
		}
	}
	return s.req.Finish()
}

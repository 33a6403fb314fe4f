// Package adopt is `sluice adopt`: it moves ssh sessions into their user's job on a compute node.
package adopt

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/internal/passwd"
)

// sessionSockets are where node daemons listen for sessions (noded.SessionsSocket); a machine may run several.
const sessionSockets = "/run/sluice/*/*.sessions"

// adoptPatience is slightly longer than a node daemon's own limit.
const adoptPatience = 20 * time.Second

// Verb is `sluice adopt`.
func Verb() *command.Verb {
	return &command.Verb{
		Name: "adopt", Line: "admit ssh logins of users with a job on this node, as part of the job (for pam_exec)",
		Page: command.Page{
			About: `Admits ssh logins of users with a job on this node, as part of the job. Run by PAM (pam_exec(8)) on a compute node, as
root, for the user PAM_USER.

If the user has a job on this node, the calling process (sshd's process of the session) and its children become part of the job: they
can use the job's CPUs, memory and devices and no others, count as its use, and end with it. Of several jobs, the one that started last
counts. Without a job, or if the node daemon does not answer, an error is printed and the exit code is 1. Root is always admitted,
outside any job.

In /etc/pam.d/sshd, put two lines before all other lines that begin with account (the first keeps root's logins independent of this
program), and one at the end of the file, after pam_systemd:

  account [success=1 default=ignore] pam_succeed_if.so quiet_fail quiet_success uid eq 0
  account required pam_exec.so quiet stdout /usr/bin/sluice adopt
  session required pam_exec.so quiet stdout /usr/bin/sluice adopt

sshd needs UsePAM yes.`,
			Options: []command.Option{
				{Name: opt.Name{Long: "exempt", Arg: opt.Required}, Meta: "LIST",
					Help: "users, and groups with %, that are always admitted: ops,%admin"},
				{Name: opt.Name{Long: "socket", Arg: opt.Required}, Meta: "PATH",
					Help: "the node daemon's socket (sluice-noded --sessions), or a pattern", Default: sessionSockets},
			},
		},
		Run: func(c *command.Call) error {
			a := &adoption{exempt: strings.Split(c.Text("exempt"), ","), sockets: c.Text("socket"), user: os.Getenv("PAM_USER"),
				stage: os.Getenv("PAM_TYPE"), service: os.Getenv("PAM_SERVICE")}
			return a.run(c.Stdout)
		},
	}
}

// adoption is one call by PAM.
type adoption struct {
	exempt               []string
	sockets              string
	user, stage, service string
}

func (a *adoption) run(out io.Writer) error {
	if a.user == "" {
		return errors.New("PAM_USER is not set; this is run by pam_exec(8), see `sluice adopt --help`")
	}
	switch a.stage {
	case "close_session":
		return nil
	case "account", "open_session":
	default:
		return fmt.Errorf("PAM_TYPE is %q; use it only on account and session lines, see `sluice adopt --help`", a.stage)
	}
	if os.Geteuid() != 0 {
		return errors.New("only root can make a session part of a job")
	}
	why := a.decide()
	if why == "" {
		return nil
	}
	fmt.Fprintf(out, "Access denied by sluice adopt: %s\n", why)
	// sshd continues a session after its PAM stack has failed. The session has been in the job since the account line, so the job
	// has ended meanwhile.
	if a.stage == "open_session" && a.service == "sshd" {
		_ = syscall.Kill(os.Getppid(), syscall.SIGTERM)
	}
	return command.ExitCode(1)
}

// decide returns why the user is denied; empty if the user is admitted and the session is in its place.
func (a *adoption) decide() string {
	user, known, err := passwd.Find(a.user)
	switch {
	case err != nil:
		return fmt.Sprintf("user %s cannot be looked up: %v", a.user, err)
	case !known:
		return fmt.Sprintf("there is no user %s on this node", a.user)
	case user.UID == 0 || a.exempted(user):
		return ""
	}
	paths, err := filepath.Glob(a.sockets)
	if err != nil {
		return err.Error()
	}
	if len(paths) == 0 {
		return "the node daemon is not running on this node"
	}
	none := false
	failed := "the node daemon does not answer on this node"
	for _, path := range paths {
		word, rest, err := askSessions(path, user.UID)
		switch {
		case err != nil: // this daemon, or all of them, are gone
		case word == "adopted":
			return ""
		case word == "none":
			none = true
		case word == "suspended":
			return fmt.Sprintf("your job %s on this node is suspended", rest)
		default:
			failed, none = rest, false
		}
	}
	if none {
		return "you have no active jobs on this node"
	}
	return failed
}

// exempted reports whether the user, or one of the user's groups, is on the list.
func (a *adoption) exempted(user passwd.Account) bool {
	if slices.Contains(a.exempt, user.Name) {
		return true
	}
	var gids []uint32
	for _, who := range a.exempt {
		name, isGroup := strings.CutPrefix(who, "%")
		if !isGroup {
			continue
		}
		if gids == nil {
			gids = passwd.Groups(user)
		}
		if gid, ok := passwd.GID(name); ok && slices.Contains(gids, gid) {
			return true
		}
	}
	return false
}

// askSessions asks a node daemon to adopt this process's parent, which the daemon learns from the kernel.
func askSessions(path string, uid uint32) (word, rest string, err error) {
	c, err := net.DialTimeout("unix", path, adoptPatience)
	if err != nil {
		return "", "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(adoptPatience))
	if _, err := fmt.Fprintf(c, "%d\n", uid); err != nil {
		return "", "", err
	}
	line, err := bufio.NewReader(io.LimitReader(c, 4096)).ReadString('\n')
	if err != nil {
		return "", "", err
	}
	word, rest, _ = strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	return word, rest, nil
}

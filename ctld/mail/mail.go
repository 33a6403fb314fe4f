// Package mail sends users mail about their jobs (sbatch(1), --mail-type) through slurm.conf's MailProg.
//
// Mail follows from the events of a commit, so no mail can become untrue: the writer calls Changed after it has published, which only
// queues. A goroutine starts the program, as SlurmUser, with an argument vector and never through a shell, because job names and addresses
// are users' text. The queue is bounded; mail that does not fit, or that the program refuses, is logged and lost, as with Slurm. Recipients
// that a mail program could read as an option, a file or a command are refused.
package mail

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/internal/inherit"
)

// Limits: waiting mails, concurrent programs, and the time of one program.
const (
	queueSize = 2000
	senders   = 2
	sendFor   = time.Minute
	sweepTime = 5 * time.Second
)

// Letter is one mail.
type Letter struct {
	Job     uint32
	To      []string
	Subject string
	Env     []string // SLURM_JOB_ID and the like, NAME=value, for programs that write more than the subject
}

// Settings are the mail settings of slurm.conf.
type Settings struct {
	Program string // MailProg
	Domain  string // MailDomain: for recipients without --mail-user
	Cluster string
	UID     uint32 // SlurmUser
	GID     uint32
}

// Post sends mail. Make it with New; Changed is a loop observer, Run sends until its context ends.
type Post struct {
	settings func() Settings
	view     func() *state.View
	log      *slog.Logger
	queue    chan Letter
	send     func(ctx context.Context, s Settings, l Letter) error
	limits   limits
	dropped  atomic.Uint64
}

// New makes a Post. It calls settings for every mail, so that a reconfiguration applies at once.
func New(settings func() Settings, view func() *state.View, log *slog.Logger) *Post {
	return &Post{settings: settings, view: view, log: log, queue: make(chan Letter, queueSize), send: run}
}

// Changed queues the mails about the events of a commit. It does not block.
func (p *Post) Changed(c state.Change) {
	if !slices.ContainsFunc(c.Events, concernsMail) {
		return // the usual case
	}
	for _, l := range compose(c, p.settings()) {
		p.put(l)
	}
}

func (p *Post) put(l Letter) {
	select {
	case p.queue <- l:
	default:
		if p.dropped.Add(1)%queueSize == 1 {
			p.log.Error("mail dropped: too many messages are waiting for MailProg", "job", l.Job, "waiting", queueSize)
		}
	}
}

// Run sends queued mails, and checks every few seconds which jobs are near their time limit.
func (p *Post) Run(ctx context.Context) {
	done := make(chan struct{})
	for range senders {
		go func() {
			defer func() { done <- struct{}{} }()
			for {
				select {
				case <-ctx.Done():
					return
				case l := <-p.queue:
					p.deliver(ctx, l)
				}
			}
		}()
	}
	t := time.NewTicker(sweepTime)
	defer t.Stop()
	for ctx.Err() == nil {
		v := p.view()
		for _, l := range p.limits.sweep(v, p.settings(), v.NowNS) {
			p.put(l)
		}
		select {
		case <-ctx.Done():
		case <-t.C:
		}
	}
	for range senders {
		<-done
	}
}

func (p *Post) deliver(ctx context.Context, l Letter) {
	ctx, cancel := context.WithTimeout(ctx, sendFor)
	defer cancel()
	if err := p.send(ctx, p.settings(), l); err != nil {
		p.log.Error("cannot send mail", "job", l.Job, "to", strings.Join(l.To, ","), "subject", l.Subject, "err", err)
	}
}

// run starts the program. A sendmail gets a whole mail on its standard input, every other program `-s SUBJECT RECIPIENT…` and an empty
// input (slurm.conf(5), MailProg).
func run(ctx context.Context, s Settings, l Letter) error {
	program, err := find(s.Program)
	if err != nil {
		return err
	}
	for _, to := range l.To {
		if !address(to) {
			return fmt.Errorf(
				"%q is not a valid mail address: only letters, digits and . _ + - = %% @ are allowed, starting with a letter or digit", to)
		}
	}
	args, text := append([]string{"-s", l.Subject}, l.To...), ""
	if filepath.Base(program) == "sendmail" {
		args, text = append([]string{"-i", "--"}, l.To...), "To: "+strings.Join(l.To, ", ")+"\nSubject: "+l.Subject+"\n\n"
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin = strings.NewReader(text)
	cmd.Dir = "/"
	cmd.Env = append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C",
		"SLURM_CLUSTER_NAME=" + s.Cluster}, l.Env...)
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if os.Geteuid() == 0 && s.UID != 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: s.UID, Gid: s.GID}
	}
	out, err := inherit.CombinedOutput(cmd)
	if err != nil {
		return fmt.Errorf("%s: %w: %s", program, err, strings.TrimSpace(strings.ToValidUTF8(string(out[:min(len(out), 500)]), "")))
	}
	return nil
}

// find returns the program to use: the configured one, or, if that is the default and missing, another mail program of the system.
func find(configured string) (string, error) {
	tries := []string{configured}
	if configured == "" || configured == "/bin/mail" {
		tries = []string{"/bin/mail", "/usr/bin/mail", "/usr/sbin/sendmail", "/usr/lib/sendmail"}
	}
	for _, path := range tries {
		if info, err := os.Stat(path); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", errors.New("no program to send mail with (MailProg of slurm.conf; tried " + strings.Join(tries, ", ") + ")")
}

// address accepts recipients that are safe for every mail program: none of "-option", "/file", "|command", and "+file", "%user" or "=file",
// which mailx(1) takes for mailboxes to write to.
func address(s string) bool {
	if s == "" || len(s) > 254 || strings.IndexByte("-+%=@", s[0]) >= 0 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("._+-=%@", c) >= 0) {
			return false
		}
	}
	return true
}

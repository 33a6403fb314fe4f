package compat

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// system is a cluster that commands can be typed at: of Sluice or of the real Slurm.
type system struct {
	env     []string // SLURM_CONF, PATH and the like
	data    string   // the folder of the configuration
	cluster string   // its name
}

const (
	// dirPattern makes folders whose name is always as long: it stands in columns.
	dirPattern = "/var/tmp/compat-"
	dirMark    = "/var/tmp/compat-@@@@@@"
	// patience is how long a state is waited for: far longer than it takes, so that a slow machine is no failure.
	patience = 5 * time.Minute
)

// session types one script.
type session struct {
	t    *testing.T
	sys  *system
	mask *mask
	vars []string // A=100001
}

// play types a script at a system and gives the answers of the recorded commands, masked.
func (sys *system) play(t *testing.T, s *script) []answer {
	t.Helper()
	dir := scratch(t, s)
	host, _ := os.Hostname()
	host, _, _ = strings.Cut(host, ".")
	p := &session{t: t, sys: sys, mask: &mask{names: map[string]string{}, dir: dir, data: sys.data, cluster: sys.cluster, host: host}}
	defer p.settle()
	var answers []answer
	for _, l := range s.lines {
		switch l.verb {
		case ">":
			answers = append(answers, p.record(l))
		case "wait":
			p.waitJob(l.words)
		case "waitfor":
			p.waitFor(l.words[0], l.command)
		}
		if t.Failed() {
			break
		}
	}
	return answers
}

// scratch makes the folder where the script's commands run, with its files.
func scratch(t *testing.T, s *script) string {
	t.Helper()
	for n := 0; ; n++ {
		dir := fmt.Sprintf("%s%06d", dirPattern, (time.Now().UnixNano()/1000+int64(n))%1000000)
		if err := os.Mkdir(dir, 0o777); os.IsExist(err) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		_ = os.Chmod(dir, 0o777)
		for _, f := range s.files {
			mode := os.FileMode(0o644)
			if bytes.HasPrefix(f.Data, []byte("#!")) {
				mode = 0o755
			}
			if err := os.WriteFile(filepath.Join(dir, f.Name), f.Data, mode); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
}

// run types one command; nothing of the test's own environment reaches it.
func (p *session) run(user, command string) (stdout, stderr string, exit int) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	argv := []string{"bash", "-c", command}
	name, home := "root", "/root"
	if user != "" {
		argv = append([]string{"setpriv", "--reuid", user, "--regid", userGroup(user), "--clear-groups", "--"}, argv...)
		name, home = user, "/nonexistent"
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = p.mask.dir
	cmd.Env = append([]string{"USER=" + name, "LOGNAME=" + name, "HOME=" + home, "TZ=" + morning(time.Now()), "LANG=C.UTF-8",
		"SHELL=/bin/bash", "CLUSTER=" + p.sys.cluster}, p.sys.env...)
	cmd.Env = append(cmd.Env, p.vars...)
	out, errs := limited{stop: cancel}, limited{stop: cancel}
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that what bash has started ends with it
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	err := cmd.Run()
	var exited *exec.ExitError
	if err != nil && !errors.As(err, &exited) {
		p.t.Errorf("cannot run %q: %v", command, err)
	}
	if ctx.Err() != nil {
		p.t.Errorf("%q has not ended after %s, or printed more than %d bytes: %.1000q %.1000q", command, patience, maxOutput, out.String(),
			errs.String())
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// morning is a time zone where it is between nine and ten o'clock: what "noon" and "today" mean, and the day that sacct shows when
// nobody says which, must not depend on when the tests run.
func morning(now time.Time) string {
	west := now.UTC().Hour() - 9
	if west > 12 { // there are zones from 12 hours west to 14 hours east
		west -= 24
	}
	return fmt.Sprintf("Etc/GMT%+d", west)
}

// maxOutput is far more than any command of the corpus prints: some print forever when standard input ends.
const maxOutput = 64 << 20

// limited keeps what is printed, and stops who prints too much.
type limited struct {
	text []byte
	stop func()
}

func (l *limited) String() string { return string(l.text) }

func (l *limited) Write(p []byte) (int, error) {
	if len(l.text)+len(p) > maxOutput {
		l.stop()
		return 0, errors.New("too much output")
	}
	l.text = append(l.text, p...)
	return len(p), nil
}

func userGroup(user string) string {
	out, _ := exec.Command("id", "-g", user).Output()
	return strings.TrimSpace(string(out))
}

// noJob is the id of a job that was refused: one that neither system has.
const noJob = "149999"

var printedID = regexp.MustCompile(`\b(\d{6})\b`)

func (p *session) record(l line) answer {
	stdout, stderr, exit := p.run(l.user, l.command)
	if l.name != "" {
		id := printedID.FindString(stdout)
		if id == "" {
			id = printedID.FindString(stderr)
		}
		if id == "" {
			id = noJob
		}
		p.vars = append(p.vars, l.name+"="+id)
		p.mask.names[id] = l.name
	}
	stdout, stderr = p.mask.answer(l.command, stdout, stderr)
	return answer{command: l.heading(), stdout: stdout, stderr: stderr, exit: exit}
}

// expand replaces $A by the id.
func (p *session) expand(text string) string {
	return os.Expand(text, func(name string) string {
		for _, v := range p.vars {
			if value, ok := strings.CutPrefix(v, name+"="); ok {
				return value
			}
		}
		return "$" + name
	})
}

// waitJob waits until a job is in one of the states; STATE,REASON asks for the reason, too.
func (p *session) waitJob(words []string) {
	id := p.expand(words[0])
	p.poll(func() (bool, string) {
		out, _, _ := p.run("", "scontrol -o show job "+id)
		for text := range strings.Lines(out) {
			state, reason := value(text, "JobState"), value(text, "Reason")
			for _, want := range words[1:] {
				if want == state || want == state+","+reason {
					return true, ""
				}
			}
		}
		return false, fmt.Sprintf("job %s is not %s: %s", words[0], words[1:], out)
	})
}

// value finds key=value in a line of `scontrol -o show`.
func value(text, key string) string {
	_, rest, ok := strings.Cut(" "+text, " "+key+"=")
	if !ok {
		return ""
	}
	return strings.Fields(rest + " -")[0]
}

func (p *session) waitFor(re, command string) {
	want := regexp.MustCompile("(?m)" + re)
	p.poll(func() (bool, string) {
		out, errs, _ := p.run("", command)
		return want.MatchString(out + errs), fmt.Sprintf("%q prints %q %q, not %s", command, out, errs, re)
	})
}

// poll asks until the check is content. It pauses between two questions because commands have no way to tell of a change.
func (p *session) poll(check func() (ok bool, saw string)) {
	deadline := time.Now().Add(patience)
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		ok, saw := check()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			p.t.Errorf("waited %s in vain: %s", patience, saw)
			return
		}
		time.Sleep(pause)
	}
}

// settle ends what the script has left, so that the next one finds an idle cluster.
func (p *session) settle() {
	p.run("",
		"squeue -h -o %A | xargs -r scancel -Q; for r in $(scontrol -o show res | sed -n 's/^ReservationName=\\([^ ]*\\).*/\\1/p'); do "+
			"scontrol delete reservationname=$r; done")
	p.poll(func() (bool, string) {
		out, _, _ := p.run("", "squeue -h -o '%i %t'")
		return out == "", "jobs are left: " + out
	})
	p.poll(func() (bool, string) {
		out, _, _ := p.run("", "sinfo -h -N -p debug,gpu -o '%N %T'")
		return strings.Count(out, " idle\n") == 6, "not all nodes are idle: " + out
	})
}

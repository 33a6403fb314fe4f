// Package scontrol is the command that shows and changes the state of jobs, nodes, partitions and reservations.
package scontrol

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unicode"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/client/view"
	"github.com/sluice-hpc/sluice/internal/passwd"
	"github.com/sluice-hpc/sluice/internal/version"
)

// showOptions are scontrol's options that change the output of show.
type showOptions struct {
	oneLine bool // -o
	details int  // -d, counted
	all     bool // -a
	future  bool // -F
	quiet   bool // -Q
	verbose int  // -v
	hide    bool // --hide

	document view.DocumentKind // --json, --yaml
}

// Main runs one command, or those read from standard input if there is none.
func Main(env *command.Env, args []string) int {
	args, flags := flagsApart(args)
	hits, rest, err := env.Scan(command.NamesOf(Options[:]), args, true)
	if err != nil {
		return env.UsageError(err, 1)
	}
	c := &control{env: env}
	if _, ok := env.LookupEnv("SLURM_CLUSTERS"); ok {
		hits = append([]opt.Hit{{Index: clustersOption(), Value: env.Getenv("SLURM_CLUSTERS")}}, hits...)
	}
	for _, h := range hits {
		if done, exit := c.option(Options[h.Index].Long, h.Value); done {
			return exit
		}
	}
	if len(rest) == 0 {
		return c.interactive()
	}
	return c.command(append(rest, flags...))
}

// flagsApart separates the words of setdebugflags, which may begin with a minus but are not options, and those of reconfigure.
func flagsApart(args []string) (others, flags []string) {
	for i, a := range args {
		if len(a) >= len("setdebugf") && strings.HasPrefix("setdebugflags", strings.ToLower(a)) {
			return args[:i+1], args[i+1:]
		}
		if len(a) >= len("rec") && strings.HasPrefix("reconfigure", strings.ToLower(a)) {
			others = append(others, args[:i+1]...)
			for _, word := range args[i+1:] {
				if word == dryRun || word == force {
					flags = append(flags, word)
				} else {
					others = append(others, word)
				}
			}
			return others, flags
		}
	}
	return args, nil
}

// Options of reconfigure, Sluice's own.
const (
	dryRun = "--dry-run"
	force  = "--force"
)

func clustersOption() int {
	for i := range Options {
		if Options[i].Long == "clusters" {
			return i
		}
	}
	return 0
}

// control is one invocation of scontrol. It connects when a command first needs the controller.
type control struct {
	env  *command.Env
	opts showOptions
	conn *client.Client
	last []string // for "!!"
	done bool     // exit or quit was read
}

func (c *control) option(long, value string) (done bool, exit int) {
	switch long {
	case "all":
		c.opts.all = true
	case "details":
		c.opts.details++
	case "future":
		c.opts.future = true
	case "hide":
		c.opts.all, c.opts.hide = false, true
	case "oneliner":
		c.opts.oneLine = true
	case "quiet":
		c.opts.quiet = true
	case "json", "yaml":
		kind, err := view.DocumentOption(c.env, long, value)
		if err != nil {
			return true, c.env.Exit(err)
		}
		c.opts.document = kind
	case "verbose":
		c.opts.verbose++
	case "help", "usage":
		_, _ = io.WriteString(c.env.Stdout, Page().Help())
		return true, 0
	case "version":
		_, _ = io.WriteString(c.env.Stdout, version.Interface())
		return true, 0
	case "uid":
		if err := actAs(value); err != nil {
			return true, c.failf("%v", err)
		}
	case "clusters":
		if err := c.env.CheckClusters(value); err != nil {
			return true, c.env.Refuse(err)
		}
	}
	return false, 0
}

// actAs runs the rest as another user, as far as the kernel permits: the controller learns the caller's identity from the kernel,
// so nobody can pose as a user that the caller cannot become.
func actAs(user string) error {
	a, ok := passwd.User(user)
	if !ok {
		return fmt.Errorf("--uid=%q invalid", user)
	}
	if os.Geteuid() != 0 || a.UID == 0 {
		return nil
	}
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(int(a.GID)), syscall.Setuid(int(a.UID))); err != nil {
		return fmt.Errorf("--uid=%q: %w", user, err)
	}
	return nil
}

// interactive reads commands until "exit", "quit" or the end of input; the exit code is that of the last failure.
func (c *control) interactive() int {
	exit := 0
	in := bufio.NewScanner(c.env.Stdin)
	for !c.done {
		fmt.Fprint(c.env.Stdout, "scontrol: ")
		if !in.Scan() {
			fmt.Fprintln(c.env.Stdout)
			break
		}
		words := quotedFields(in.Text())
		if len(words) == 0 {
			continue
		}
		if code := c.command(words); code != 0 {
			exit = code
		}
	}
	return exit
}

// quotedFields splits a line into words; quotes protect blanks and are removed.
func quotedFields(line string) []string {
	var words []string
	var word strings.Builder
	quote, open := rune(0), false
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '"' || r == '\'':
			quote, open = r, true
		case unicode.IsSpace(r):
			if open {
				words = append(words, word.String())
			}
			word.Reset()
			open = false
		default:
			word.WriteRune(r)
			open = true
		}
	}
	if open {
		words = append(words, word.String())
	}
	return words
}

// keyword is one scontrol command. min is the minimum length of an abbreviation, as in a real scontrol; least and most bound the
// number of arguments (most < 0: any number).
type keyword struct {
	name        string
	min         int
	least, most int
	run         func(c *control, args []string) int
	help        string
}

// command runs one command line.
func (c *control) command(words []string) int {
	if words[0] == "!!" {
		if c.last == nil {
			return c.fail("no previous command")
		}
		words = c.last
	}
	c.last = words
	tag := strings.ToLower(words[0])
	for _, k := range keywords() {
		if len(tag) < k.min || !strings.HasPrefix(k.name, tag) {
			continue
		}
		switch args := words[1:]; {
		case len(args) < k.least:
			return c.fail("too few arguments for keyword:" + words[0])
		case k.most >= 0 && len(args) > k.most:
			return c.fail("too many arguments for keyword:" + words[0])
		default:
			return k.run(c, args)
		}
	}
	lines := []string{"invalid keyword: " + words[0]}
	var names []string
	for _, k := range keywords() {
		names = append(names, k.name)
	}
	if near := opt.Nearest(names, words[0]); near != "" {
		lines = append(lines, "did you mean "+near+"?")
	}
	return c.fail(lines...)
}

// fail prints lines unless -Q was given, and returns the exit code of a failure.
func (c *control) fail(lines ...string) int {
	if !c.opts.quiet {
		for _, l := range lines {
			fmt.Fprintln(c.env.Stderr, l)
		}
	}
	return c.env.ErrorExit()
}

func (c *control) failf(format string, args ...any) int {
	return c.fail("scontrol: error: " + fmt.Sprintf(format, args...))
}

// callFailed reports why a call failed: before is Slurm's text before the phrase, as in "slurm_update error".
func (c *control) callFailed(before string, err error) int {
	text, more := command.Phrase(err)
	lines := []string{before + ": " + text}
	if more != "" {
		lines = append(lines, more)
	}
	return c.fail(lines...)
}

func (c *control) dial() (*client.Client, error) {
	if c.conn == nil {
		conn, err := c.env.Dial(context.Background())
		if err != nil {
			return nil, err
		}
		c.conn = conn
	}
	return c.conn, nil
}

func (c *control) unsupported(name string) int {
	return c.failf("%s is not supported by Sluice", name)
}

// Small commands.

func (c *control) ping([]string) int {
	began := c.env.Now()
	conn, err := c.dial()
	var r *msg.PingReply
	if err == nil {
		r, err = conn.Ping(context.Background(), &msg.PingRequest{})
	}
	if c.opts.document.Wanted {
		return c.pingDocument(r, c.env.Now().Sub(began), err)
	}
	if err != nil {
		fmt.Fprintf(c.env.Stdout, "Slurmctld(primary) at %s is DOWN\n", command.ShortHostname())
		text, more := command.Phrase(err)
		return c.fail("scontrol: "+text, "scontrol: "+more)
	}
	fmt.Fprintf(c.env.Stdout, "Slurmctld(%s) at %s is UP\n", r.GetMode(), r.GetHost())
	return 0
}

func (c *control) version([]string) int {
	fmt.Fprint(c.env.Stdout, version.Interface())
	return 0
}

func (c *control) help([]string) int {
	_, _ = io.WriteString(c.env.Stdout, Page().Help())
	return 0
}

func (c *control) errnumstr(args []string) int {
	n, err := strconv.ParseUint(args[0], 10, 32)
	if err != nil {
		return c.fail("numeric arguments required for keyword:errnumstr")
	}
	fmt.Fprintln(c.env.Stdout, errorText(uint32(n)))
	return 0
}

// reconfigure is silent, as in Slurm, unless it is asked what would change.
func (c *control) reconfigure(args []string) int {
	req := &msg.ReconfigureRequest{}
	for _, a := range args {
		switch a {
		case dryRun:
			req.DryRun = true
		case force:
			req.Force = true
		default:
			if strings.HasPrefix(a, "-") {
				return c.failf("unknown option %s of reconfigure; options are %s and %s", a, dryRun, force)
			}
		}
	}
	conn, err := c.dial()
	var reply *msg.UpdateReply
	if err == nil {
		reply, err = conn.Reconfigure(context.Background(), req)
	}
	if err != nil {
		return c.callFailed("slurm_reconfigure error", err)
	}
	for _, line := range reply.GetChanges() {
		fmt.Fprintln(c.env.Stdout, format.Escape(line))
	}
	if p := reply.GetRefused(); p != nil {
		return c.fail("slurm_reconfigure error: "+p.GetPhrase(), command.Diagnosis(p))
	}
	return 0
}

func (c *control) warn(text string) {
	if text != "" && !c.opts.quiet {
		fmt.Fprintln(c.env.Stderr, "scontrol: "+text)
	}
}

func (c *control) shutdown(args []string) int {
	nodes := true
	if len(args) == 1 {
		switch strings.ToLower(args[0]) {
		case "slurmctld", "controller":
			nodes = false
		default:
			return c.fail("invalid shutdown argument:" + args[0])
		}
	}
	conn, err := c.dial()
	if err == nil {
		_, err = conn.Shutdown(context.Background(), &msg.ShutdownRequest{NodesToo: nodes})
	}
	if err != nil {
		return c.callFailed("slurm_shutdown error", err)
	}
	return 0
}

// show handles what needs no controller and leaves the rest to runShow.
func (c *control) show(args []string) int {
	if len(args) > 0 {
		switch entity := strings.ToLower(args[0]); {
		case len(args) > 2 && !isAssocMgr(entity):
			return c.fail("too many arguments for keyword:show")
		case len(entity) >= 5 && (strings.HasPrefix("hostnames", entity) || entity == "hostname"):
			return c.hostnames(args[1:])
		case entity == "hostlist":
			return c.hostlist(args[1:], false)
		case len(entity) > len("hostlist") && strings.HasPrefix("hostlistsorted", entity):
			return c.hostlist(args[1:], true)
		}
	}
	return runShow(c.env, c.opts, args)
}

// Package scrontab is the command that edits, shows or removes a crontab.
package scrontab

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/client/sbatch"
	"github.com/sluice-hpc/sluice/internal/passwd"
)

var Options = [...]command.Option{
	{Name: opt.Name{Long: "edit", Short: 'e'}, Help: "edit the crontab with $VISUAL or $EDITOR"},
	{Name: opt.Name{Long: "help"}, Help: "show this help"},
	{Name: opt.Name{Long: "list", Short: 'l'}, Help: "print the crontab"},
	{Name: opt.Name{Long: "quiet", Short: 'Q'}, Help: "print errors only"},
	{Name: opt.Name{Long: "remove", Short: 'r'}, Help: "remove the crontab and cancel its pending jobs"},
	{Name: opt.Name{Long: "usage"}, Help: "show a short help"},
	{Name: opt.Name{Long: "user", Short: 'u', Arg: opt.Required}, Meta: "user", Help: "use this user's crontab (root and SlurmUser only)"},
	{Name: opt.Name{Long: "verbose", Short: 'v'}, Help: "print which job belongs to which line"},
	{Name: opt.Name{Long: "version", Short: 'V'}, Help: "show the version"},
}

const usage = "Usage: scrontab [-u user] [-e | -l | -r | file | -]\n"

// Page describes the command.
func Page() command.Page {
	return command.Page{
		Usage: usage,
		About: `Runs jobs periodically, as cron does. Each entry of the crontab is a job that waits until it is due, runs, and waits again.
Without an option the crontab is read from a file, or from standard input.`,
		Title:   "Options:",
		Options: Options[:],
		Blocks: []command.Block{
			{Title: "The crontab", Text: `  #SCRON --time=5 --mem=1G      options of sbatch, for the next entry alone
  DIR=/home/alice/data          a variable for the entries below it
  */10 * * * * $DIR/sync.sh     minute, hour, day of month, month, day of week (0 or 7 is Sunday), command
  @daily $DIR/report.sh         also @hourly, @weekly, @monthly, @yearly, @midnight, @noon, @elevenses, @fika, @teatime
scancel of such a job ends it for good and comments its lines out with "#DISABLED: ".
`},
		},
		Examples: `  scrontab -e                   edit
  scrontab my.crontab           replace the crontab by a file
  squeue --me                   the jobs, which wait with the reason BeginTime

`,
	}
}

// run is one invocation of scrontab.
type run struct {
	env            *command.Env
	verb           byte // 'e', 'l', 'r', or 0: a file
	user           string
	quiet, verbose bool
	file           string
	owner          passwd.Account
	other          bool
	conn           *client.Client
}

// Main runs one scrontab command line.
func Main(env *command.Env, args []string) int {
	r := &run{env: env}
	if err := r.parse(args); err != nil {
		return env.Exit(err)
	}
	conn, err := env.Dial(context.Background())
	if err != nil {
		return r.failed(err)
	}
	r.conn = conn
	defer func() { _ = conn.Close() }()
	switch r.verb {
	case 'l':
		return r.list()
	case 'r':
		return r.remove()
	case 'e':
		return r.edit()
	}
	return r.install()
}

func (r *run) parse(args []string) error {
	rest, err := r.env.Options(Options[:], args, func(name string, h opt.Hit) error {
		switch name {
		case "edit", "list", "remove":
			if r.verb != 0 && r.verb != name[0] {
				return r.env.Failf("-e, -l and -r are mutually exclusive")
			}
			r.verb = name[0]
		case "user":
			r.user = h.Value
		case "quiet":
			r.quiet = true
		case "verbose":
			r.verbose = true
		case "help":
			return r.env.Print(Page().Help())
		case "usage":
			return r.env.Print(usage)
		case "version":
			return r.env.PrintVersion()
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case len(rest) > 1, len(rest) == 1 && r.verb != 0:
		return r.env.Failf("too many arguments; see scrontab --help")
	case len(rest) == 1:
		r.file = rest[0]
	case r.verb == 0 && command.IsTerminal(r.env.Stdin): // a crontab on a terminal is a mistake
		_, _ = io.WriteString(r.env.Stderr, usage)
		return command.ExitCode(1)
	}
	return r.findOwner()
}

func (r *run) findOwner() error {
	r.owner = passwd.Self()
	if r.user == "" {
		return nil
	}
	a, ok := passwd.User(r.user)
	if !ok {
		return r.env.Failf("Couldn't find user %s", format.Escape(r.user))
	}
	r.other = a.UID != r.owner.UID
	if r.other && os.Getuid() != 0 {
		r.env.Infof("only root and SlurmUser may use -u for others") // the controller decides
	}
	r.owner = a
	return nil
}

func (r *run) failed(err error) int {
	text, more := command.Phrase(err)
	r.env.Errorf("%s", format.Escape(text))
	if more != "" {
		r.env.Errorf("%s", format.Escape(more))
	}
	return r.env.ErrorExit()
}

func (r *run) present() (*msg.CrontabRecord, error) {
	reply, err := r.conn.Crontab(context.Background(), &msg.CrontabRequest{OfOther: r.other, Uid: r.owner.UID})
	return reply.GetCrontab(), err
}

func (r *run) list() int {
	c, err := r.present()
	switch {
	case err != nil:
		return r.failed(err)
	case c == nil:
		fmt.Fprintf(r.env.Stderr, "no crontab for %s\n", format.Escape(r.owner.Name))
		return 1
	}
	if r.verbose {
		r.say(c)
	}
	text := c.GetText()
	if command.IsTerminal(r.env.Stdout) { // it may be another user's, and must not control the terminal
		lines := strings.Split(text, "\n")
		for i := range lines {
			lines[i] = strings.ReplaceAll(format.Escape(strings.ReplaceAll(lines[i], "\t", "    ")), "\r", "")
		}
		text = strings.Join(lines, "\n")
	}
	if _, err := io.WriteString(r.env.Stdout, text); err != nil {
		return 1
	}
	return 0
}

// say prints the job of each entry.
func (r *run) say(c *msg.CrontabRecord) {
	for _, e := range c.GetEntries() {
		r.env.Infof("lines %d-%d: job %d, %s", e.GetFirstLine(), e.GetLastLine(), e.GetJobId(), format.Escape(e.GetCron()))
	}
}

func (r *run) remove() int {
	if _, err := r.conn.UpdateCrontab(context.Background(), &msg.UpdateCrontabRequest{OfOther: r.other, Uid: r.owner.UID,
		Remove: true}); err != nil {
		return r.failed(err)
	}
	return 0
}

// maxCrontabBytes is the controller's limit.
const maxCrontabBytes = 256 << 10

func (r *run) install() int {
	in := r.env.Stdin
	if r.file != "" && r.file != "-" {
		f, err := os.Open(r.file)
		if err != nil {
			r.env.Errorf("cannot read the crontab: %v", err)
			return 1
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxCrontabBytes+1))
	if err != nil {
		r.env.Errorf("cannot read the crontab: %v", err)
		return 1
	}
	if fault := r.put(string(text)); fault != nil {
		r.report(fault)
		return 1
	}
	return 0
}

// cronFault is why a crontab was rejected, and the lines at fault; 0 = none in particular.
type cronFault struct {
	first, last int
	text        string
}

func (r *run) report(f *cronFault) {
	if f.first > 0 {
		r.env.Errorf("There was an issue with the job submission on lines %d-%d", f.first, f.last)
	}
	r.env.Errorf("%s", format.Escape(f.text))
}

// put sends a crontab.
func (r *run) put(text string) *cronFault {
	if len(text) > maxCrontabBytes {
		return &cronFault{text: fmt.Sprintf("the crontab has more than %d bytes", maxCrontabBytes)}
	}
	entries, fault := readCrontab(text)
	if fault != nil {
		return fault
	}
	req := &msg.UpdateCrontabRequest{OfOther: r.other, Uid: r.owner.UID, Text: text, Remove: text == ""}
	for _, e := range entries {
		submit, err := sbatch.CronJob(r.env, r.owner, e.job)
		if err != nil {
			return &cronFault{e.first, e.last, err.Error()}
		}
		req.Jobs = append(req.Jobs, &msg.CrontabJob{Cron: e.when, Submit: submit, FirstLine: uint32(e.first), LastLine: uint32(e.last)})
	}
	reply, err := r.conn.UpdateCrontab(context.Background(), req)
	if err != nil {
		what, more := command.Phrase(err)
		return &cronFault{text: strings.TrimSuffix(what+": "+more, ": ")}
	}
	if p := reply.GetProblem(); p != nil {
		what := p.GetPhrase()
		if d := command.Diagnosis(p); d != "" {
			what += ": " + d
		}
		return &cronFault{int(reply.GetFirstLine()), int(reply.GetLastLine()), what}
	}
	if r.verbose {
		r.say(reply.GetCrontab())
	}
	return nil
}

// example is the initial content of the editor if there is no crontab. It consists of comments.
const example = `# Each line that is not a comment is an entry: a job that waits until its time, runs, and waits for the next time.
# An entry has a time and a command:
#
#   minute (0-59) | hour (0-23) | day of month (1-31) | month (1-12 or jan-dec) | day of week (0-7 or sun-sat; 0 and 7 are Sunday)
#
# or one of @hourly, @daily, @weekly, @monthly, @yearly instead of these five. "*" is any value, "*/10" every tenth, "1-5" a range,
# "8,12,16" a list. Lines with #SCRON hold options of sbatch for the next entry; NAME=value sets a variable for the entries below it.
#
# A job on working days at 6:30, with ten minutes and one gigabyte; remove the leading "# " to use it:
#
# #SCRON --job-name=sync --time=10 --mem=1G --output=sync-%j.out
# 30 6 * * 1-5 $HOME/bin/sync.sh
`

// edit lets the user edit the crontab until it is accepted or the user gives up.
func (r *run) edit() int {
	c, err := r.present()
	if err != nil {
		return r.failed(err)
	}
	dir, err := os.MkdirTemp("", "scrontab-")
	if err != nil {
		r.env.Errorf("cannot create a temporary file: %v", err)
		return 1
	}
	defer os.RemoveAll(dir)
	path := dir + "/crontab"
	before := c.GetText()
	if before == "" {
		before = example
	}
	text := before
	answers := bufio.NewReader(r.env.Stdin)
	for {
		if text, err = r.editor(path, text); err != nil {
			r.env.Errorf("cannot edit the crontab: %v", err)
			return 1
		}
		if text == before || text == "" && c.GetText() == "" {
			if !r.quiet {
				r.env.Infof("no changes made to the crontab")
			}
			return 0
		}
		fault := r.put(text)
		if fault == nil {
			return 0
		}
		r.report(fault)
		text = markBad(text, fault)
		fmt.Fprint(r.env.Stdout, "\nDo you want to retry the edit? (y/n) ")
		answer, err := answers.ReadString('\n')
		if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" || err != nil && answer == "" {
			fmt.Fprintln(r.env.Stdout)
			r.env.Infof("the crontab was not changed")
			return 1
		}
	}
}

// editor runs the user's editor on a text and returns the result.
func (r *run) editor(path, text string) (string, error) {
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return "", err
	}
	program := cmp.Or(cmp.Or(r.env.Getenv("VISUAL"), r.env.Getenv("EDITOR")), "vi")
	// EDITOR may have arguments ("code --wait"), so a shell interprets it, as crontab does. It is the user's own and runs as the
	// user.
	cmd := exec.Command("/bin/sh", "-c", program+` "$1"`, "scrontab", path)
	cmd.Stdout, cmd.Stderr, cmd.Env = r.env.Stdout, r.env.Stderr, r.env.Environ
	if f, ok := r.env.Stdin.(*os.File); ok {
		cmd.Stdin = f
	}
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w", program, err)
	}
	b, err := os.ReadFile(path)
	return string(b), err
}

// markBad comments out the rejected lines for the next edit.
func markBad(text string, f *cronFault) string {
	lines := strings.Split(text, "\n")
	for i := max(f.first, 1); f.first > 0 && i <= f.last && i <= len(lines); i++ {
		lines[i-1] = "#BAD: " + lines[i-1]
	}
	return strings.Join(lines, "\n")
}

// cronLine is one entry of a crontab.
type cronLine struct {
	first, last int
	when        string
	job         sbatch.CronEntry
}

// readCrontab parses a crontab: comments, #SCRON lines, variables, entries (scrontab(1)). The controller parses the times.
func readCrontab(text string) (entries []cronLine, fault *cronFault) {
	var options, vars []string
	first := 0 // line of the first #SCRON
	for i, line := range strings.Split(text, "\n") {
		n := i + 1
		line = strings.TrimSpace(strings.TrimSuffix(line, "\r"))
		if rest, ok := strings.CutPrefix(line, "#SCRON"); ok && (rest == "" || rest[0] == ' ' || rest[0] == '\t') {
			options = append(options, strings.TrimSpace(rest))
			if first == 0 {
				first = n
			}
			continue
		}
		if line == "" || line[0] == '#' {
			continue
		}
		if v, ok := cronVariable(line); ok {
			vars = append(vars[:len(vars):len(vars)], v)
			continue
		}
		when, command := cutWhen(line)
		if command == "" {
			return nil, &cronFault{n, n, fmt.Sprintf("%q: expected five fields, or a word such as @daily, and a command", line)}
		}
		e := cronLine{first: n, last: n, when: when, job: sbatch.CronEntry{Options: options, Vars: vars, Command: command}}
		if first > 0 {
			e.first = first
		}
		entries = append(entries, e)
		options, first = nil, 0
	}
	if first > 0 {
		return nil, &cronFault{first, first, "#SCRON without an entry after it"}
	}
	return entries, nil
}

// cronVariable reads NAME=value and removes quotes around the value.
func cronVariable(line string) (v string, ok bool) {
	name, value, ok := strings.Cut(line, "=")
	name = strings.TrimSpace(name)
	if !ok || name == "" {
		return "", false
	}
	for i := range len(name) {
		c := name[i]
		if !(c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || i > 0 && c >= '0' && c <= '9') {
			return "", false
		}
	}
	value = strings.TrimSpace(value)
	if n := len(value); n >= 2 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
		value = value[1 : n-1]
	}
	return name + "=" + value, true
}

// cutWhen splits an entry into its time, with single blanks, and its command.
func cutWhen(line string) (when, command string) {
	fields := 5
	if line[0] == '@' {
		fields = 1
	}
	var words []string
	for range fields {
		line = strings.TrimLeft(line, " \t")
		end := strings.IndexAny(line, " \t")
		if end < 0 {
			return "", ""
		}
		words = append(words, line[:end])
		line = line[end:]
	}
	return strings.Join(words, " "), strings.TrimSpace(line)
}

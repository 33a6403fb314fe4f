package compat

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
)

// These tests hold the command lines of some fifty programs that call Slurm, as found in their sources, and the way in which each
// reads the answer: which pattern it looks for, how many fields it splits a line into, what it does about standard error and the
// exit code. All calls go to one set of jobs (fleet), so that a contract costs a few milliseconds.

// contract is what one tool types and expects.
type contract struct {
	tool  string // as in the table of docs/commands.md
	calls []call
}

// call is one command line. In patterns, <RUN> is the id of the fleet's job of that name.
type call struct {
	run    string              // as the tool types it; $RUN is the id
	exit   int                 //
	errs   string              // all of standard error; "" = silent, as tools that take any word there for a failure need it
	lines  string              // pattern of every line of standard output as a whole; "" = any
	has    []string            // patterns found in standard output
	hasNot string              //
	n      int                 // so many lines; 0 = any number
	file   string              // the script "job" that this call submits, if any
	until  bool                // the answer depends on other jobs: asked until the lines fit
	read   func(string) string // what the tool's own parser finds wrong
}

// fleet is a job for each state that tools ask about.
var fleet = []struct{ name, submit, state string }{
	{"RUN", "-J run -t 10 -o out-%j.txt sleep.sh", "RUNNING"},
	{"GPU", "-J gpu -p gpu --gres=gpu:a100:1 -n 2 -o /dev/null sleep.sh", "RUNNING"},
	{"MULTI", "-J multi -N 2 -o /dev/null sleep.sh", "RUNNING"},
	{"HELD", "-J held -H -o /dev/null job.sh", "PENDING"},
	{"DONE", "-J done -o /dev/null job.sh", "COMPLETED"},
	{"FAILED", "-J failed -o /dev/null --wrap 'exit 3'", "FAILED"},
	{"CANC", "-J canc -H -o /dev/null job.sh", "PENDING"},
	{"ARR", "-J arr -H -a 1-4%2 -o /dev/null job.sh", "PENDING"},
	{"DEP", "-J dep -d afterok:$HELD -o /dev/null job.sh", "PENDING"},
	{"BLOCKED", "-J blocked -p gpu -N 2 --exclusive -o /dev/null job.sh", "PENDING"},
}

// launch starts the fleet and gives the words that patterns may use.
func launch(p *tool) *strings.Replacer {
	words := []string{"<CLUSTER>", p.sys.cluster}
	for _, f := range fleet {
		id := p.submit(f.submit)
		p.vars = append(p.vars, f.name+"="+id)
		words = append(words, "<"+f.name+">", id)
		if f.state == "RUNNING" { // before others that it is to keep waiting
			p.until(id, f.state)
		}
	}
	p.must("scancel $CANC")
	for _, f := range fleet {
		state := f.state
		if f.name == "CANC" {
			state = "CANCELLED"
		}
		p.until(p.expand("$"+f.name), state)
	}
	return strings.NewReplacer(words...)
}

func TestTools(t *testing.T) {
	p := newTool(t, scripts)
	ids := launch(p)
	for _, list := range [][]contract{workflowTools, libraryTools, portalTools, monitorTools} {
		for _, c := range list {
			t.Run(c.tool, func(t *testing.T) {
				q := &tool{t: t, session: &session{t: t, sys: p.sys, mask: p.mask, vars: p.vars}}
				for _, call := range c.calls {
					q.check(ids, call)
				}
			})
		}
	}
}

// check types one call and reads the answer as its tool does.
func (p *tool) check(ids *strings.Replacer, c call) {
	p.t.Helper()
	if c.file != "" {
		if err := os.WriteFile(p.mask.dir+"/job", []byte(c.file), 0o755); err != nil {
			p.t.Fatal(err)
		}
	}
	if c.until {
		p.waitFor(`^(?:`+c.lines+`)$`, c.run)
	}
	stdout, stderr, exit := p.run("", c.run)
	bad := func(text string, args ...any) {
		p.t.Helper()
		p.t.Errorf("%s\n"+text+"\nexit %d, standard output:\n%.3000s\nstandard error:\n%.1000s",
			append(append([]any{c.run}, args...), exit, stdout, stderr)...)
	}
	if exit != c.exit {
		bad("the exit code is not %d", c.exit)
	}
	if !regexp.MustCompile(`^(?:` + ids.Replace(c.errs) + `)$`).MatchString(stderr) {
		bad("standard error is not %q", c.errs)
	}
	list := strings.Split(strings.TrimSuffix(stdout, "\n"), "\n")
	if stdout == "" {
		list = nil
	}
	if line := regexp.MustCompile(`^(?:` + ids.Replace(c.lines) + `)$`); c.lines != "" {
		for _, l := range list {
			if !line.MatchString(l) {
				bad("a line is not %s: %q", c.lines, l)
			}
		}
		if len(list) == 0 {
			bad("no lines")
		}
	}
	if c.n > 0 && len(list) != c.n {
		bad("%d lines, not %d", len(list), c.n)
	}
	for _, h := range c.has {
		if !regexp.MustCompile(`(?m)` + ids.Replace(h)).MatchString(stdout) {
			bad("there is no %s", h)
		}
	}
	if c.hasNot != "" && regexp.MustCompile(`(?m)`+ids.Replace(c.hasNot)).MatchString(stdout) {
		bad("there is %s", c.hasNot)
	}
	if c.read != nil {
		if wrong := c.read(stdout); wrong != "" {
			bad("%s", wrong)
		}
	}
}

// submitted is the line that nearly all tools look for.
const submitted = `Submitted batch job \d+`

// noJobError is what queries of one unknown job say; several tools compare it to the byte.
const noJobError = "slurm_load_jobs error: Invalid job id specified\n"

// keyed reads key=value words as the scripts do that know no others: each word has its "=".
func keyed(out string) string {
	for _, w := range strings.Fields(out) {
		if !strings.Contains(w, "=") {
			return "a word without \"=\": " + w
		}
	}
	return ""
}

// document reads JSON into what a tool's program declares.
func document[T any](wrong func(*T) string) func(string) string {
	return func(out string) string {
		v := new(T)
		if err := json.Unmarshal([]byte(out), v); err != nil {
			return err.Error()
		}
		return wrong(v)
	}
}

// TestToolsAreDocumented holds the contracts and the table of docs/commands.md together.
func TestToolsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/commands.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(text), "## Tools whose calls are tested\n")
	if !ok {
		t.Fatal(`docs/commands.md has no section "Tools whose calls are tested"`)
	}
	table, _, _ = strings.Cut(table, "\n## ")
	names := map[string]bool{}
	for _, list := range [][]contract{workflowTools, libraryTools, portalTools, monitorTools, inJobTools} {
		for _, c := range list {
			if names[c.tool] {
				t.Errorf("%s stands twice in the contracts", c.tool)
			}
			names[c.tool] = true
			if !strings.Contains(table, c.tool) {
				t.Errorf("%s is not in the table of docs/commands.md", c.tool)
			}
		}
	}
	if len(names) < 30 {
		t.Errorf("contracts of %d tools", len(names))
	}
}

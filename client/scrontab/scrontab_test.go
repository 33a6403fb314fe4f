package scrontab

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/msg"
)

// cronKeeper is a controller that keeps one crontab and refuses entries whose partition is "bad".
type cronKeeper struct {
	msg.ControllerAPIClient
	tab  *msg.CrontabRecord
	puts []*msg.UpdateCrontabRequest
}

func (k *cronKeeper) Close() error { return nil }

func (k *cronKeeper) Crontab(context.Context, *msg.CrontabRequest) (*msg.CrontabReply, error) {
	return &msg.CrontabReply{Crontab: k.tab}, nil
}

func (k *cronKeeper) UpdateCrontab(_ context.Context, r *msg.UpdateCrontabRequest) (*msg.CrontabReply, error) {
	k.puts = append(k.puts, r)
	tab := &msg.CrontabRecord{Text: r.Text}
	for i, j := range r.Jobs {
		if j.Submit.Spec.Partition == "bad" {
			return &msg.CrontabReply{Problem: msg.NewProblem(msg.CodeInvalidPartition, "there is no partition bad"),
				FirstLine: j.FirstLine, LastLine: j.LastLine}, nil
		}
		tab.Entries = append(tab.Entries, &msg.CrontabEntry{JobId: uint32(i + 1), Cron: j.Cron, FirstLine: j.FirstLine,
			LastLine: j.LastLine})
	}
	if k.tab = tab; r.Remove {
		k.tab = nil
	}
	return &msg.CrontabReply{Crontab: k.tab}, nil
}

func (k *cronKeeper) run(stdin string, environ []string, args ...string) (rc int, stdout, stderr string) {
	var out, errs bytes.Buffer
	e := &command.Env{Name: "scrontab", Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errs, Now: time.Now,
		Environ: append(environ, "SBATCH_PARTITION=ofshell"), Getwd: os.Getwd,
		Dial: func(context.Context) (*client.Client, error) { return &client.Client{ControllerAPIClient: k}, nil }}
	rc = Main(e, args)
	return rc, out.String(), errs.String()
}

func TestReadCrontab(t *testing.T) {
	entries, fault := readCrontab(
		"# c\n\nA=1\n#SCRON -t 5\n# between\n#SCRON --mem=1G -J \"a b\"\n 0 1\t*  * mon  cmd  x \nB = 'two  words'\n@daily " +
			"other\n#SCRONx\n#DISABLED: @daily no\n")
	if fault != nil {
		t.Fatal(fault)
	}
	if len(entries) != 2 {
		t.Fatalf("%d entries", len(entries))
	}
	a, b := entries[0], entries[1]
	if a.first != 4 || a.last != 7 || a.when != "0 1 * * mon" || a.job.Command != "cmd  x" ||
		!reflect.DeepEqual(a.job.Options, []string{"-t 5", `--mem=1G -J "a b"`}) || !reflect.DeepEqual(a.job.Vars, []string{"A=1"}) {
		t.Errorf("first: %+v", a)
	}
	if b.first != 9 || b.last != 9 || b.when != "@daily" || b.job.Command != "other" || b.job.Options != nil ||
		!reflect.DeepEqual(b.job.Vars, []string{"A=1", "B=two  words"}) {
		t.Errorf("second: %+v", b)
	}
	for text, line := range map[string]int{"* * * *\n": 1, "\n@daily\n": 2, "* * * * *\n": 1, "#SCRON -t 1\n": 1,
		"@daily x\n#SCRON -t 1\n# end": 2} {
		if _, fault := readCrontab(text); fault == nil || fault.first != line {
			t.Errorf("%q: %+v", text, fault)
		}
	}
}

func FuzzReadCrontab(f *testing.F) {
	for _, s := range []string{"@daily x", "* * * * * x\n", "A=1\n#SCRON -t 1\n* * * * * $A", "#SCRON", "=", " \t\n", "@"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		entries, fault := readCrontab(text)
		lines := strings.Count(text, "\n") + 1
		if fault != nil && (fault.first < 1 || fault.last > lines) {
			t.Errorf("%q: fault in lines %d-%d", text, fault.first, fault.last)
		}
		for _, e := range entries {
			if e.first < 1 || e.first > e.last || e.last > lines || e.when == "" || e.job.Command == "" {
				t.Errorf("%q: %+v", text, e)
			}
		}
	})
}

func TestScrontabInstalls(t *testing.T) {
	k := &cronKeeper{}
	if rc, _, stderr := k.run("", nil, "-l"); rc != 1 || !strings.HasPrefix(stderr, "no crontab for ") {
		t.Errorf("-l of none: %d, %q", rc, stderr)
	}
	text := "V=x\n#SCRON -t 7 -p long\n*/5 * * * * /bin/prog a\n"
	if rc, out, stderr := k.run(text, nil, "-"); rc != 0 || out+stderr != "" {
		t.Fatalf("%d, %q, %q", rc, out, stderr)
	}
	job := k.puts[0].Jobs[0]
	if s := job.Submit.Spec; s.Name != "prog" || s.TimeLimitS != 420 || s.Partition != "long" || job.Cron != "*/5 * * * *" ||
		job.FirstLine != 2 || job.LastLine != 3 {
		t.Errorf("job %v", job)
	}
	if env := strings.Join(job.Submit.Env, " "); !strings.Contains(env, "V=x") || strings.Contains(env, "SBATCH_PARTITION") ||
		!strings.Contains(env, "HOME=") {
		t.Errorf("environment %q", env)
	}
	if got := string(job.Submit.Script); !strings.HasPrefix(got, "#!/bin/sh\n") || !strings.HasSuffix(got, "\n/bin/prog a\n") {
		t.Errorf("script %q", got)
	}
	if rc, out, _ := k.run("", nil, "-l"); rc != 0 || out != text {
		t.Errorf("-l: %d, %q", rc, out)
	}
	if rc, _, stderr := k.run("@daily a\n#SCRON -p bad\n@daily b\n", nil); rc != 1 || !strings.Contains(stderr, "lines 2-3") ||
		!strings.Contains(stderr, "Invalid partition name specified") {
		t.Errorf("refused: %d, %q", rc, stderr)
	}
	if rc, _, stderr := k.run("#SCRON --nosuch\n@daily b\n", nil); rc != 1 || !strings.Contains(stderr, "lines 1-2") {
		t.Errorf("bad option: %d, %q", rc, stderr)
	}
	if rc, _, _ := k.run("", nil, "-r"); rc != 0 || k.tab != nil {
		t.Errorf("-r: %d, %v", rc, k.tab)
	}
	for _, args := range [][]string{{"-e", "-l"}, {"-l", "x"}, {"a", "b"}, {"-u", "no-such-user"}, {"/no/such/file"}} {
		if rc, _, stderr := k.run("", nil, args...); rc != 1 || !strings.HasPrefix(stderr, "scrontab: error: ") {
			t.Errorf("%v: %d, %q", args, rc, stderr)
		}
	}
}

// The editor is a program that does what it is told by its own words.
func TestScrontabEdits(t *testing.T) {
	dir := t.TempDir()
	editor := func(script string) []string {
		path := filepath.Join(dir, "ed")
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return []string{"EDITOR=" + path + " ", "PATH=" + os.Getenv("PATH")}
	}
	// Without a crontab there is an example to start from: nothing but comments, which left alone is no crontab, and whose entry works.
	k := &cronKeeper{}
	for _, script := range []string{"! grep -v '^#' \"$1\" && grep -q '^# #SCRON' \"$1\"", `: > "$1"`} {
		if rc, _, stderr := k.run("", editor(script), "-e"); rc != 0 || len(k.puts) != 0 || !strings.Contains(stderr, "no changes") {
			t.Errorf("the example, %s: %d, %q, %d sent", script, rc, stderr, len(k.puts))
		}
	}
	if rc, _, stderr := k.run("", editor(`sed -i 's/^# \(#SCRON\|30 \)/\1/' "$1"`), "-e"); rc != 0 || len(k.puts) != 1 ||
		len(k.puts[0].Jobs) != 1 || k.puts[0].Jobs[0].Cron != "30 6 * * 1-5" || k.puts[0].Jobs[0].Submit.Spec.TimeLimitS != 600 {
		t.Errorf("the example's entry: %d, %q, %v", rc, stderr, k.puts)
	}
	k = &cronKeeper{tab: &msg.CrontabRecord{Text: "@daily a\n"}}
	if rc, _, stderr := k.run("", editor("true"), "-e"); rc != 0 || len(k.puts) != 0 || !strings.Contains(stderr, "no changes") {
		t.Errorf("no change: %d, %q, %d sent", rc, stderr, len(k.puts))
	}
	if rc, _, stderr := k.run("", editor(`echo "@noon b" >> "$1"`), "-e"); rc != 0 || k.tab.Text != "@daily a\n@noon b\n" {
		t.Errorf("edited: %d, %q, %q", rc, stderr, k.tab.GetText())
	}
	// Refused, edited again: the refused lines are marked, and the second time it is good.
	rc, out,
		_ := k.run("y\n",
		editor(
			`if grep -q BAD "$1"; then sed -i 's/^#BAD: #SCRON.*/#SCRON -p ok/; s/^#BAD: //' "$1"; else printf '#SCRON -p bad\n@daily c\n' > "$1"; fi`), "-e")
	if rc != 0 || k.tab.Text != "#SCRON -p ok\n@daily c\n" || !strings.Contains(out, "Do you want to retry the edit? (y/n)") {
		t.Errorf("second try: %d, %q, %q", rc, out, k.tab.GetText())
	}
	if rc, _, stderr := k.run("n\n", editor(`echo bad > "$1"`), "-e"); rc != 1 || !strings.Contains(stderr, "not changed") ||
		k.tab.Text != "#SCRON -p ok\n@daily c\n" {
		t.Errorf("given up: %d, %q", rc, stderr)
	}
	if rc, _, stderr := k.run("", editor("exit 3"), "-e"); rc != 1 || !strings.Contains(stderr, "cannot edit") {
		t.Errorf("editor fails: %d, %q", rc, stderr)
	}
}

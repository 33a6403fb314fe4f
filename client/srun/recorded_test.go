package srun

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// other are command lines to which the answer is another one, and why.
var other = map[string]string{
	"srun ''":                           "it is the node that says so",
	"srun nosuchprogram":                "it is the node that says so",
	"srun -n2 nosuchprogram":            "it is the node that says so",
	"srun -Q nosuch":                    "it is the node that says so",
	"srun /etc/passwd":                  "it is the node that says so",
	"srun /tmp":                         "it is the node that says so",
	"srun ./bin":                        "it is the node that says so",
	"srun -n2 --multi-prog mpnoexec":    "it is the node that says so",
	"srun -D /nonexist pwd":             "it is the node that says so",
	"srun --task-prolog=nosuch true":    "it is the node that says so",
	"srun -p nope true":                 "it is the controller that says so",
	"srun --jobid=99 true":              "it is the controller that says so",
	"srun --test-only -n2 true":         "it is the controller that says so",
	"srun --ntasks-per-node=9 -N1 true": "it is the controller that says so",
	"srun --mem=999G true":              "it is the controller that says so",
	"srun -w n9 true":                   "it is the controller that says so",
	"srun --gres=gpu:9 -p gpu true":     "it is the controller that says so",
	"srun -n4 -N2 sh -c 'exit 3'":       "the controller divides tasks otherwise",
	"srun -I true":                      "there are resources",
	"srun -I2 true":                     "there are resources",
	"srun -n3 sh -c 'kill -SEGV $$'":    "whether there is a core depends on the limits of the test",
	"srun -W2 -n2 sh -c '[ $SLURM_PROCID = 0 ] && sleep 20'":        "SIGTERM comes first",
	"srun -K -n3 sh -c '[ $SLURM_PROCID = 1 ] && exit 4; sleep 20'": "the shell says Terminated to its own standard error",
	"srun --mpi=list":              "cray_shasta is not there, and of PMIx the names of versions are names of one",
	"srun --mpi=foo true":          "nothing is looked for in files",
	"srun --cpu-bind=help":         "it is shown",
	"srun --cpu-bind=foo true":     "the cluster of the record has no CPU binding",
	"srun --bcast=/tmp/x true":     "cmd/e2e has nodes that take it in",
	"srun --het-group=0 true":      "refused by name",
	"srun : true":                  "refused by name",
	"srun -n1 true : -n1 true":     "refused by name",
	"srun --x11 true":              "refused by name",
	"srun -Z true":                 "refused by name",
	"srun --immediate=x true":      "the option is named as it is written",
	"srun -n2 -i 1 cat </dev/null": "the redirection is the shell's",
}

var ids = regexp.MustCompile(`(StepId=|job |Job |JobId=)[0-9.]+`)

// mask hides what is another one each time.
func mask(line string) string {
	line = ids.ReplaceAllString(line, "${1}N")
	return regexp.MustCompile(`\bn[0-9]: `).ReplaceAllString(line, "n: ")
}

// TestRecorded: exit codes, output and messages are those of a real Slurm; explanations may follow.
func TestRecorded(t *testing.T) {
	data, err := os.ReadFile("testdata/slurm-22.05.txt")
	if err != nil {
		t.Fatal(err)
	}
	s := newSession(t)
	for name, text := range map[string]string{"mp": "# c\n0 echo zero %t %o\n1-2 echo rest %t %o\n", "mpgap": "0 echo zero\n2 echo two\n",
		"mpover": "0-1 echo a\n1-2 echo b\n", "mpstar": "0 echo a\n* echo star %t %o\n", "mpbad": "x-y echo\n",
		"mpq": "0 sh -c 'echo %t $1 x'\n1 echo \"a b\" 'c d'\n"} {
		s.file(t, name, text)
	}
	compared := 0
	for _, entry := range strings.Split(string(data), "\n$ ")[1:] {
		lines := strings.Split(strings.TrimSpace(entry), "\n")
		if other[lines[0]] != "" {
			continue
		}
		compared++
		t.Run(lines[0], func(t *testing.T) { compare(t, s, lines[0], lines[1:]) })
	}
	if compared < 35 {
		t.Errorf("only %d answers are compared", compared)
	}
}

func compare(t *testing.T, s *session, line string, want []string) {
	words, err := exec.Command("sh", "-c", "set -- "+strings.TrimPrefix(line, "srun")+`; for a; do printf '%s\0' "$a"; done`).Output()
	if err != nil {
		t.Fatal(err)
	}
	args := strings.Split(string(words), "\x00")
	out, errs, exit := s.run(t, args[:len(args)-1]...)
	var wantOut, said []string
	wantExit := -1
	for _, w := range want {
		kind, text, _ := strings.Cut(w, " ")
		switch kind {
		case "exit":
			_, _ = fmt.Sscan(text, &wantExit)
		case "1":
			wantOut = append(wantOut, text)
		case "2":
			said = append(said, mask(text))
		}
	}
	if exit != wantExit {
		t.Errorf("exit code %d, Slurm's is %d", exit, wantExit)
	}
	got := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if out == "" {
		got = nil
	}
	slices.Sort(got)
	slices.Sort(wantOut)
	mixed := strings.Contains(line, "-u ")
	if !slices.Equal(got, wantOut) && !mixed {
		t.Errorf("printed %q, Slurm %q", got, wantOut)
	}
	mine := apart(strings.Split(mask(errs), "\n"))
	for _, w := range apart(said) {
		if !slices.Contains(mine, w) {
			t.Errorf("%q is not in %q", w, mine)
		}
	}
}

// tasksOf is a line about tasks that have ended.
var tasksOf = regexp.MustCompile(`^(.* tasks? )([0-9,-]+)(: .*)$`)

// apart gives a line to each task: which of them are told together depends on when they end.
func apart(lines []string) (out []string) {
	for _, line := range lines {
		m := tasksOf.FindStringSubmatch(line)
		if m == nil {
			out = append(out, line)
			continue
		}
		for _, span := range strings.Split(m[2], ",") {
			var first, last int
			if n, _ := fmt.Sscanf(span, "%d-%d", &first, &last); n == 1 {
				last = first
			}
			for task := first; task <= last; task++ {
				out = append(out, fmt.Sprintf("%s%d%s", strings.Replace(m[1], " tasks ", " task ", 1), task, m[3]))
			}
		}
	}
	return out
}

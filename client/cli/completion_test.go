package cli

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/client/command"
)

// Every command is completed, and every command has a short help and a long one with examples.
func TestEveryCommandIsComplete(t *testing.T) {
	done := map[string]bool{}
	for _, c := range completions() {
		done[c.name] = true
	}
	for _, name := range Names() {
		if !done[name] {
			t.Errorf("%s is not completed", name)
		}
	}
}

// complete asks bash itself what it offers for a line.
func complete(t *testing.T, line string) string {
	t.Helper()
	words := strings.Fields(strings.ReplaceAll(line, "=", " = "))
	if strings.HasSuffix(line, " ") || strings.HasSuffix(line, "=") {
		words = append(words, "")
	}
	script := completionBash() + `
compopt() { :; }
sinfo() { case "$*" in *%R*) echo debug; echo long;; *) echo n1; echo n2;; esac; }
squeue() { echo 12; echo 13; }
COMP_LINE=$1; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
_sluice_$1 "$1"; echo "${COMPREPLY[*]}"
`
	out, err := exec.Command("bash", append([]string{"-c", script, "bash", line}, words...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", line, err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestCompletion(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("there is no bash")
	}
	for line, want := range map[string]string{
		"squeue --no": "--noconvert --nodelist= --noheader --notme", "squeue -p ": "debug long", "squeue --partition=l": "long",
		"squeue -p debug,l": "debug,long",
		"sinfo --nodes=n":   "n1 n2", "scancel 1": "12 13", "scancel --sig": "--signal=",
		"sbatch --mail-type=TIME_LIMIT_9": "TIME_LIMIT_90",
		"scontrol sh":                     "show shutdown", "scontrol show part": "partitions", "scontrol show job ": "12 13",
		"scontrol hold 13":     "13",
		"scontrol update Node": "NodeName=",
		"sluice exp":           "explain", "scrontab --e": "--edit", "sdiag --js": "--json", "sinfo -t idl": "idle",
		"squeue -t pend": "pending",
	} {
		if got := complete(t, line); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

// TestCompletionShells: what `sluice completion` cannot do is said with what it can.
func TestCompletionShells(t *testing.T) {
	for args, want := range map[string]string{"": "name the shell", "zsh": `cannot make completions for "zsh": there are those for bash`,
		"--help": "source <(sluice completion bash)", "bash": "complete -o default -F _sluice_sbatch sbatch"} {
		var out strings.Builder
		code := sluice(&command.Env{Stdout: &out, Stderr: &out}, append([]string{"completion"}, strings.Fields(args)...))
		if good := args == "--help" || args == "bash"; (code == 0) != good || !strings.Contains(out.String(), want) {
			t.Errorf("%q: %d, %.200s; want %q", args, code, out.String(), want)
		}
	}
}

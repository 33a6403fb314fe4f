package cli

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/completion"
)

// Every command is completed.
func TestEveryCommandIsCompleted(t *testing.T) {
	done := map[string]bool{}
	for _, c := range completions(Verbs()) {
		done[c.Name] = true
	}
	for _, name := range append(Names(), "sluice") {
		if !done[name] {
			t.Errorf("%s is not completed", name)
		}
	}
}

// TestOptionsSayWhatTheyAre: each option has a line of help and a name for its argument: --help, manual page and completions show them.
func TestOptionsSayWhatTheyAre(t *testing.T) {
	for _, p := range Pages() {
		help := p.Help()
		for i := range p.Options {
			o := &p.Options[i]
			switch {
			case o.Canon != "":
				if !slices.ContainsFunc(p.Options, func(c command.Option) bool { return c.Long == o.Canon && c.Help != "" }) {
					t.Errorf("%s --%s is another name of --%s, which does not exist", p.Name, o.Long, o.Canon)
				}
			case o.Help == "":
				t.Errorf("%s --%s has no help", p.Name, o.Long)
			case o.Arg != 0 && o.Meta == "":
				t.Errorf("%s --%s has no name for its argument", p.Name, o.Long)
			case !strings.Contains(help, "--"+o.Long):
				t.Errorf("%s --help lacks --%s", p.Name, o.Long)
			}
		}
	}
}

// shell is a shell at work: what it offers for lines, one answer to each, with words separated by blanks and sorted.
type shell struct {
	name   string
	script func([]completion.Command, completion.Of) string
	ask    string // a script; $1 is the file of completions, $2 a line
	wants  map[string]string
}

// The cluster of the tests: what `sluice sinfo` and `sluice squeue` print.
const fakeSluice = `#!/bin/sh
case "$*" in
sinfo*%R) echo debug; echo long ;;
sinfo*%N) echo n1; echo n2 ;;
sinfo*%f) echo fast,big ;;
squeue*) echo 12; echo 13 ;;
scontrol*) echo "ReservationName=course StartTime=now" ;;
esac
`

// What all shells answer; options are offered with "=" in bash alone.
var offered = map[string]string{
	"squeue -p ": "debug long", "squeue --partition=l": "long", "squeue -p debug,l": "debug,long", "sinfo --nodes=n": "n1 n2",
	"scancel 1": "12 13", "sbatch --mail-type=TIME_LIMIT_9": "TIME_LIMIT_90", "scontrol show part": "partitions",
	"scontrol show job ": "12 13", "scontrol hold 13": "13", "scontrol update Node": "NodeName=", "sluice exp": "explain",
	"scrontab --e": "--edit", "sinfo -t idl": "idle", "squeue -t pend": "pending", "sacct -o JobIDR": "JobIDRaw",
	"sbatch --reservation=co": "course", "sbatch --constraint=fa": "fast", "sluice squeue -p l": "long", "sluice explain 1": "12 13",
	"scancel --si": "--sibling --signal", "sluice completion z": "zsh", "scontrol update NodeName=": "n1 n2",
}

var shells = []shell{
	{"bash", completion.Bash, `. "$1"; shift
# compopt works only where readline has asked; the other parts of what it does are readline's.
compopt() { :; }
for asked; do
	echo "? $asked"
	COMP_LINE=$asked COMP_POINT=${#asked} line=${asked//=/ = }
	read -ra COMP_WORDS <<<"$line"
	[[ $asked == *[\ =] ]] && COMP_WORDS+=("")
	COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
	_sluice_${COMP_WORDS[0]} "${COMP_WORDS[0]}"
	printf '%s\n' "${COMPREPLY[@]}"
done`, map[string]string{"squeue --no": "--noconvert --nodelist= --noheader --notme", "sbatch --sig": "--signal=",
		"scancel --si": "--sibling= --signal=", "sbatch -J ": ""}},
	// A zsh within a zsh, at a terminal, which is asked by the key Tab: its completion works nowhere else. What is offered is seen by a
	// function in place of compadd.
	{"zsh", completion.Zsh, `zmodload zsh/zpty; hits=$1.hits; : >$hits
zpty z zsh -f -i
say() { zpty -w z "$1" }
wait-for() { until grep -qx $1 $hits; do zpty -rt z drop 2>/dev/null; sleep 0.02; done }
say "HITS=$hits; fpath=(${1:h} \$fpath); autoload -Uz compinit; compinit -u -D"
say 'PS1= PROMPT= RPS1= ; stty -echo cols 4000; unsetopt zle_bracketed_paste prompt_cr; setopt no_list_beep; LISTMAX=0'
say 'compadd() { if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)* ]]; then builtin compadd "$@"; return; fi
  typeset -a __h; builtin compadd -A __h "$@"; [[ -n $__h ]] && print -rl -- "HIT:"${^__h} >>$HITS; builtin compadd "$@" }'
say 'answered() { print -r -- END >>$HITS; BUFFER= ; zle reset-prompt }; zle -N answered; bindkey "^X^E" answered'
say 'print READY >>$HITS'
wait-for READY
shift
for asked; do
	: >$hits
	print -r -- "? $asked"
	zpty -w -n z "$asked"$'\t'$'\x18\x05'
	wait-for END
	word=${asked##* }; word=${word#*=}
	[[ $word == *,* ]] && head=${word%,*}, || head=
	sed -n "s/^HIT:/$head/p" $hits
done
zpty -d z`, map[string]string{"squeue --nod": "--nodelist"}},
	{"fish", completion.Fish, `source $argv[1]
for asked in $argv[2..-1]
	echo "? $asked"
	complete -C "$asked" | string replace -r '\t.*' '' | string replace -r '^(--[a-z-]*=|-[a-zA-Z]|NodeName=(?=n))' ''
end`, map[string]string{}},
}

func TestCompletion(t *testing.T) {
	for _, s := range shells {
		t.Run(s.name, func(t *testing.T) {
			if _, err := exec.LookPath(s.name); err != nil {
				t.Skipf("there is no %s here; install the package %s", s.name, s.name)
			}
			want := maps.Clone(offered)
			maps.Copy(want, s.wants)
			got := s.offers(t, slices.Sorted(maps.Keys(want)))
			for line, words := range want {
				if got[line] != words {
					t.Errorf("%q: %q, want %q", line, got[line], words)
				}
			}
		})
	}
}

// offers asks the shell what it offers for each line.
func (s *shell) offers(t *testing.T, lines []string) map[string]string {
	t.Helper()
	dir := t.TempDir()
	file, program := filepath.Join(dir, "_sluice"), filepath.Join(dir, "bin/sluice")
	if err := os.Mkdir(filepath.Dir(program), 0o755); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{file: s.script(completions(Verbs()), arguments), program: fakeSluice} {
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	args := append([]string{"-c", s.ask, s.name, file}, lines...)
	if s.name == "fish" {
		args = append([]string{"-N", "-c", s.ask, file}, lines...)
	}
	cmd := exec.Command(s.name, args...)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"), "HOME="+dir, "TERM=dumb")
	out, err := cmd.CombinedOutput()
	answers := map[string]string{}
	for _, part := range strings.Split("\n"+string(out), "\n? ")[1:] {
		line, rest, _ := strings.Cut(part, "\n")
		words := strings.Fields(rest)
		slices.Sort(words)
		answers[line] = strings.Join(slices.Compact(words), " ")
	}
	if len(answers) != len(lines) {
		t.Fatalf("%s answered %d of %d lines: %v: %s", s.name, len(answers), len(lines), err, out)
	}
	return answers
}

// TestCompletionShells: what `sluice completion` cannot do is said with what it can.
func TestCompletionShells(t *testing.T) {
	for args, want := range map[string]string{"": "sluice completion: bash|zsh|fish is missing",
		"tcsh":   `cannot print completions for "tcsh": supported shells are bash`,
		"--help": "source <(sluice completion bash)", "bash": "complete -o default -F _sluice_sbatch sbatch", "zsh": "#compdef sbatch",
		"fish": "complete -c sbatch"} {
		var out strings.Builder
		env := &command.Env{Name: "sluice", Stdout: &out, Stderr: &out}
		code := sluice(env, append([]string{"completion"}, strings.Fields(args)...), nil)
		if good := args != "" && args != "tcsh"; (code == 0) != good || !strings.Contains(out.String(), want) {
			t.Errorf("%q: %d, %.200s; want %q", args, code, out.String(), want)
		}
	}
}

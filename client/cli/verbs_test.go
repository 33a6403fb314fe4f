package cli

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/client/clienttest"
	"github.com/sluice-hpc/sluice/client/command"
)

// TestBadOptions: every verb says in the same words what is wrong with its options and arguments, and refuses before it does anything.
func TestBadOptions(t *testing.T) {
	for line, want := range map[string]string{
		"up --frob":                       "sluice up: unrecognized option '--frob'\nTry \"sluice up --help\" for more information\n",
		"up --nodse 2":                    "sluice up: did you mean --nodes?\n",
		"up -nodes=2":                     "sluice up: did you mean --nodes=2, with two hyphens?\n",
		"up --dir":                        "sluice up: option '--dir' requires an argument\n",
		"up --nodes=two":                  "sluice up: --nodes=two: expected a whole number\n",
		"up --nodes=99999999999999999999": "expected a whole number\n",
		"up --detach=perhaps":             "sluice up: option '--detach' doesn't allow an argument\n",
		"up --timeout 2":                  "sluice up: --timeout=2: expected a time such as 30s or 2m\n",
		"down extra":                      "sluice down: unknown argument \"extra\"\n",
		"token craete":                    "for more information\nsluice token: did you mean create?\n",
		"token frob":                      "sluice token: unknown command \"frob\"\nTry \"sluice token --help\" for more information\n",
		"token --frob":                    "sluice token: unrecognized option '--frob'\n",
		"token revoke":                    "sluice token revoke: ID is missing\n",
		"token create --ttl never":        "sluice token create: --ttl=never: expected a time such as 30s or 2m\n",
		"token create":                    "sluice token create: error: name the host: --node NAME\n",
		"node revoke":                     "sluice node revoke: NAME is missing\n",
		"certs --all=x":                   "sluice certs: option '--all' doesn't allow an argument\n",
		"certs n1":                        "sluice certs: unknown argument \"n1\"\n",
		"conf check a b":                  "sluice conf check: unknown argument \"b\"\n",
		"conf chekc":                      "sluice conf: did you mean check?\n",
		"explain":                         "sluice explain: JOB is missing\n",
		"gpus --watch=soon":               "sluice gpus: error: --watch=soon: give seconds from 0.1 to 86400\n",
		"report --by weather":             "sluice report: error: --by takes user, account, partition or node, not weather\n",
		"completion":                      "sluice completion: bash|zsh|fish is missing\n",
		"completion ksh":                  "sluice completion: error: cannot print completions for \"ksh\"",
		"adopt --sokcet /x":               "sluice adopt: did you mean --socket?\n",
	} {
		words := strings.Fields(line)
		verbs := append(Verbs(), completionVerb(nil))
		v := verbs[slices.IndexFunc(verbs, func(v *command.Verb) bool { return v.Name == words[0] })]
		var out, errs strings.Builder
		env := &command.Env{Name: "sluice " + words[0], Stdout: &out, Stderr: &errs, Now: time.Now}
		if exit := v.Main(env, words[1:]); exit != 1 || !strings.Contains(errs.String(), want) || out.Len() > 0 {
			t.Errorf("%s: %d, %q, %q", line, exit, errs.String(), out.String())
		}
	}
}

// TestHelpOfVerbs: each verb says how it is typed, what it does, and its options; `sluice VERB` alone lists the verbs below it.
func TestHelpOfVerbs(t *testing.T) {
	for line, want := range map[string][]string{
		"up --help":           {"Usage: sluice up [OPTION...]\n", "      --nodes=N ", "\nExamples:\n  sluice up --nodes 2"},
		"token":               {"Usage: sluice token COMMAND [OPTION...]\n", "\nCommands:\n  create ", "  revoke ID "},
		"token help":          {"Usage: sluice token COMMAND"},
		"token create --help": {"Usage: sluice token create --node NAME [OPTION...]\n", "(default: compute)"},
		"token list --help":   {"  -h, --noheader ", "      --help "},
		"conf check --help":   {"Usage: sluice conf check [OPTION...] [FILE]\n", "\nExamples:\n"},
		"explain --help":      {"Usage: sluice explain [OPTION...] JOB…\n"},
		"gpus -h":             {"Usage: sluice gpus [OPTION...]\n", "[=SECONDS]", "  -h, --help "},
		"report --usage":      {"Usage: sluice report [OPTION...]\n"},
	} {
		words := strings.Fields(line)
		verbs := Verbs()
		v := verbs[slices.IndexFunc(verbs, func(v *command.Verb) bool { return v.Name == words[0] })]
		var out, errs strings.Builder
		exit := v.Main(&command.Env{Name: "sluice " + words[0], Stdout: &out, Stderr: &errs}, words[1:])
		for _, w := range want {
			if exit != 0 || errs.Len() > 0 || !strings.Contains(out.String(), w) {
				t.Errorf("%s: %d, %q, without %q\n%s", line, exit, errs.String(), w, out.String())
			}
		}
	}
}

// TestHelpHasTheWordsOfSlurm: scripts and tests look for these words of Slurm's help.
func TestHelpHasTheWordsOfSlurm(t *testing.T) {
	const options, helpOptions = "[OPTIONS]", "\nHelp options:\n"
	for command, words := range map[string][]string{
		"sbatch --help": {options, helpOptions, "\nParallel run options:\n", "\nConstraint options:\n",
			"\nConsumable resources related options:\n",
			"\nGPU scheduling options:\n", "\nOther options:\n"},
		"sbatch --usage":  {"Usage: sbatch [-N nnodes] [-n ntasks]", "[--mincpus=n]", "[--spread-job]", " executable [args...]\n"},
		"squeue --help":   {"Usage: squeue [OPTIONS]\n", helpOptions},
		"squeue --usage":  {"[-u user_name]", "[--qos qos]", "[--sort fields]", "[--step step_id]", "[-ahjlrsv]"},
		"sinfo --help":    {"Usage: sinfo [OPTIONS]\n", helpOptions},
		"sinfo --usage":   {"Usage: sinfo [-abdelNRrsTv] [-i seconds] [-t states] [-p partition] [-n nodes]", "[-O Format]"},
		"scancel --help":  {"Usage: scancel [OPTIONS] [job_id[_array_id][.step_id]]", helpOptions},
		"sprio --help":    {"Usage: sprio [OPTIONS]\n", helpOptions},
		"sdiag --help":    {"Usage: sdiag [OPTIONS]\n", helpOptions},
		"scrontab --help": {"Usage: scrontab [", helpOptions},
		"sacct --help":    {options, "Valid <OPTION> values are:\n"},
		"sstat --help":    {options, "Valid <OPTION> values are:\n"},
		"sacctmgr --help": {"sacctmgr [<OPTION>] [<COMMAND>]\n", "Valid <OPTION> values are:\n", "Valid <COMMAND> values are:\n",
			"list <ENTITY> [<SPECS>]", "<ENTITY> may be"},
		"scontrol --help": {"scontrol [<OPTION>] [<COMMAND>]\n", "Valid <OPTION> values are:\n", "Valid <COMMAND> values are:\n",
			"show <ENTITY> [<ID>]", "<ENTITY> may be"},
	} {
		stdout, stderr, exit := run(t, &clienttest.Controller{}, "", nil, strings.Fields(command)...)
		for _, w := range words {
			if !strings.Contains(stdout, w) || stderr != "" || exit != 0 {
				t.Errorf("%s: %d, without %q, %q", command, exit, w, stderr)
			}
		}
	}
}

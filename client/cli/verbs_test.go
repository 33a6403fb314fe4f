package cli

import (
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/client/admin"
	"github.com/sluice-hpc/sluice/client/clienttest"
)

// TestHelpListsEveryVerb: `sluice help` and package admin each have a list.
func TestHelpListsEveryVerb(t *testing.T) {
	listed := map[string]bool{}
	for _, v := range Verbs() {
		listed[v[0]] = true
	}
	for _, c := range admin.Verbs(nil) {
		if !listed[c.Name] {
			t.Errorf("sluice help does not list %s", c.Name)
		}
		delete(listed, c.Name)
	}
	for _, ours := range []string{"explain", "gpus", "report", "token", "node", "certs"} { // of this package
		delete(listed, ours)
	}
	for name := range listed {
		t.Errorf("sluice help lists %s, which is no verb", name)
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

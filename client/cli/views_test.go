package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Where our answers differ from the recorded ones on purpose. Each pattern is replaced in what Slurm wrote.
var onPurpose = []struct {
	pattern *regexp.Regexp
	with    string
}{
	// Interface 25.11: ReqTRES and AllocTRES in place of TRES; Power, CapWatts and ExtSensors are gone.
	{regexp.MustCompile(`(?m)^( *)Power=\n`), ""},
	{regexp.MustCompile(` Power= `), " "},
	{regexp.MustCompile(`(?m)^ *(CapWatts|ExtSensorsJoules)=.*\n`), ""},
	{regexp.MustCompile(` CapWatts=n/a`), ""},
	{regexp.MustCompile(` ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s`), ""},
	// A count of tasks that nobody gave is one task.
	{regexp.MustCompile(`NumTasks=N/A`), "NumTasks=1"},
	// The states of this interface and those that Sluice adds.
	{regexp.MustCompile(`Valid job states include: .*`), "Valid job states include: "},
	{regexp.MustCompile(`valid states: .*`), "valid states: "},
}

// skip names the answers that are not compared, with the reason.
func skip(argv string) string {
	for _, s := range [...]struct{ argv, why string }{
		{"squeue -M", "our cluster needs no database to know its name"},
		{"sinfo -M", "our cluster needs no database to know its name"},
		{"squeue -w n[1-", "a broken host list is refused with its fault"},
		{"sinfo -n n[1-", "a broken host list is refused with its fault"},
		{"scontrol show node n[1-", "a broken host list is refused with its fault"},
		{"squeue -w localhost", "the host name of the recording"},
		{"scontrol show aliases", "the host name of the recording"},
		{"scontrol show daemons", "the host name of the recording"},
		{"squeue extra", "usage in our words"},
		{"squeue -j 8 extra", "usage in our words"},
		{"squeue -O jobid:-10,name:+5,state", "a sign is a suffix here, 22.05 reads it as part of the width"},
		{"squeue -o %all", "tested by its columns"},
		{"sinfo -o %all", "tested by its columns"},
		{"squeue -s", "tested in TestSteps"},
		{"scontrol show step", "tested in TestSteps"},
		{"squeue -o %i %@ %é", "22.05 writes half a character"},
		{"squeue -j 8 9", "22.05 reads the first of ids with blanks between, we read all"},
		{"squeue -j 18_[4-8]", "22.05 shows a task that was not asked for"},
		{"squeue -S N,i", "22.05 turns the second key round where the first is empty"},
		{"squeue -S S,i", "22.05 takes an expected start that has passed for a later one"},
		{"squeue -S bogus", "another of the bad letters is named"},
		{"squeue -S jobid", "another of the bad letters is named"},
		{"squeue --array -p debug,long", "the recorded array has a requeued task"},
		{"squeue -h -t PD -o %i", "the recorded array has a requeued task"},
		{"scontrol show job 8_", "an id that is broken is repeated as it was given"},
		{"scontrol show job 18", "records come in the order of ids"},
		{"sinfo -N -O nodelist,memory,nodeaddr", "the man page knows priority, 22.05 does not"},
		{"sinfo -T", "reservations come with an issue of their own"},
		{"scontrol sh job", "commands are the business of scontrol.go"},
		{"sinfo -t maint,resv", "reboot states are known here"},
		{"sinfo -t ~idle", "negation is known here (23.02)"},
		{"sinfo -t !idle", "negation is known here (23.02)"},
		{"squeue -t all -O jobarrayid:20,eligibletime", "the facts do not have the most nodes of a refused job"},
		{"squeue -t all -O jobarrayid:20,origin", "22.05 counts pending time to an expected start that has passed"},
		{"squeue -t all -O jobarrayid:20,sockets", "22.05 shows slurm-25.out for what is written to slurm-18_0.out"},
	} {
		if s.why != "" && (strings.HasPrefix(argv, s.argv) && !strings.HasPrefix(argv, s.argv+"_")) {
			return s.why
		}
	}
	return ""
}

// arrayRest is what is left of the recorded array: Slurm joins a requeued task to it, we show it as a row of its own, and cuts the
// expression at 32 bytes.
var arrayRest = regexp.MustCompile(`(?m)^.*(18_\[|\b18_2\b|^18 |^26 ).*\n`)

// comparable removes from an answer what is not compared.
func comparable(argv []string, s string, expected bool) string {
	if expected {
		if argv[0] == "squeue" {
			s = strings.ReplaceAll(s, "4294967294", "1         ") // NumTasks
		}
		for _, p := range onPurpose {
			s = p.pattern.ReplaceAllString(s, p.with)
		}
		s = regexp.MustCompile(`(?m)^( *)TRES=(.*)$`).ReplaceAllStringFunc(s, func(l string) string {
			if argv[0] == "scontrol" && !slices.ContainsFunc(argv,
				func(a string) bool { return strings.HasPrefix(strings.ToLower(a), "part") }) {
				return strings.Replace(l, "TRES=", "ReqTRES=", 1)
			}
			return l
		})
		if argv[0] == "scontrol" && slices.ContainsFunc(argv, func(a string) bool { return strings.HasPrefix(strings.ToLower(a), "j") }) {
			s = strings.ReplaceAll(s, " TRES=", " ReqTRES=")
		}
	} else {
		s = regexp.MustCompile(`(?m)^ *AllocTRES=.*\n`).ReplaceAllStringFunc(s, func(l string) string {
			if argv[0] == "scontrol" && slices.ContainsFunc(argv,
				func(a string) bool { return strings.HasPrefix(strings.ToLower(a), "j") }) {
				return ""
			}
			return l
		})
		if argv[0] == "scontrol" && slices.ContainsFunc(argv, func(a string) bool { return strings.HasPrefix(strings.ToLower(a), "j") }) {
			s = regexp.MustCompile(` AllocTRES=\S*( \S*null\S*)?`).ReplaceAllString(s, "")
		}
		for _, word := range []string{"Valid job states include: ", "valid states: "} {
			s = regexp.MustCompile(word+".*").ReplaceAllString(s, word)
		}
	}
	if argv[0] == "squeue" {
		s = arrayRest.ReplaceAllString(s, "")
	}
	return strings.ReplaceAll(s, `\no-newline`, "")
}

// sortsFully reports whether the order of rows is settled by what was asked for; where it is not, Slurm's is that of its job list
// and ours that of ids, and only the set of rows is compared.
func sortsFully(argv []string) bool {
	i := slices.Index(argv, "-S")
	return i >= 0 && strings.HasSuffix(argv[i+1], "i") || slices.Contains(argv, "show")
}

func lines(s string, header bool) string {
	l := strings.SplitAfter(s, "\n")
	switch {
	case !header:
		slices.Sort(l)
	case len(l) > 1:
		slices.Sort(l[1:])
	}
	return strings.Join(l, "")
}

// TestViewsRecorded runs every recorded command line against the same facts.
func TestViewsRecorded(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "slurm.conf")
	if err := os.WriteFile(conf, []byte("ClusterName=lab\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TZ", "UTC")
	for _, set := range []struct {
		answers string
		facts   []string
	}{
		{"facts.txt", []string{"facts.txt"}},
		{"squeue.txt", []string{"facts.txt"}},
		{"sinfo.txt", []string{"facts.txt"}},
		{"sinfo-b.txt", []string{"facts.txt", "facts-b.txt"}},
	} {
		s := readScene(t, set.facts...)
		now, all := readRecorded(t, set.answers)
		s.now = now
		compared := 0
		for _, r := range all {
			name := strings.Join(r.argv, " ")
			// 22.05 names nobody, not root, for a reason that was cleared.
			if skip(name) != "" || strings.Contains(r.stdout, "|Unknown|Unknown|") {
				continue
			}
			compared++
			t.Run(set.answers+"/"+name, func(t *testing.T) {
				env := map[string]string{"SLURM_CONF": conf}
				for k, v := range r.env {
					env[k] = v
				}
				rc, stdout, stderr := s.run(r.argv, env)
				if rc != r.rc {
					t.Errorf("exit code %d, Slurm's is %d", rc, r.rc)
				}
				want, got := comparable(r.argv, r.stdout, true), comparable(r.argv, stdout, false)
				if set.answers == "facts.txt" { // one line each; Slurm has them in the order of its list
					want, got = lines(want, false), lines(got, false)
				} else if !sortsFully(r.argv) {
					header := !slices.ContainsFunc(r.argv, func(a string) bool {
						return strings.HasPrefix(a, "-") && !strings.HasPrefix(a, "--") && strings.Contains(a, "h")
					})
					want, got = lines(want, header), lines(got, header)
				}
				if got != want {
					t.Errorf("stdout\n%s\nSlurm's\n%s\nfirst difference %s", got, want, difference(got, want))
				}
				if want, got := comparable(r.argv, r.stderr, true), comparable(r.argv, stderr,
					false); strings.TrimSpace(got) != strings.TrimSpace(want) {
					t.Errorf("stderr\n%q\nSlurm's\n%q", got, want)
				}
			})
		}
		if compared < 40 && set.answers != "facts.txt" {
			t.Errorf("only %d answers of %s are compared", compared, set.answers)
		}
	}
}

func difference(a, b string) string {
	la, lb := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range la {
		if i >= len(lb) {
			return "\n" + la[i] + "\n(none)"
		}
		if la[i] != lb[i] {
			return "\n" + la[i] + "\n" + lb[i]
		}
	}
	return "\n(none)\n" + lb[len(la)]
}

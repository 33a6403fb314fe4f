package joboptions

import (
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/client/opt"
)

func TestMisread(t *testing.T) {
	names := Names(Sbatch)
	for line, want := range map[string]string{
		"-time=10 x.sh":         "-time=10 means -t ime=10; did you mean --time=10, with two hyphens?",
		"-mem=1G x.sh":          "-mem=1G means -m em=1G; did you mean --mem=1G, with two hyphens?",
		"-part=gpu x.sh":        "-part=gpu means -p art=gpu; did you mean --partition=gpu, with two hyphens?",
		"-partition debug x.sh": "-partition means -p artition; did you mean --partition, with two hyphens?",
		"–mem=1G x.sh":          "–mem=1G begins with an en dash (U+2013), not with a hyphen; type --mem=1G",
		"—mem=1G x.sh":          "—mem=1G begins with an em dash (U+2014), not with a hyphen; type --mem=1G",
		"-–mem=1G x.sh":         "",
		"–n 4":                  "–n begins with an en dash (U+2013), not with a hyphen; type -n",
		"−n4":                   "−n4 begins with a minus sign (U+2212), not with a hyphen; type -n4",
		"-n4 -t10 -Jname x.sh":  "",
		"-pdebug x.sh":          "",
		"--time=10 -time x.sh":  "-time means -t ime; did you mean --time, with two hyphens?",
		"-J -time x.sh":         "", // an argument
		"-ntasks=4":             "-ntasks=4 means -n tasks=4; did you mean --ntasks=4, with two hyphens?",
		"x.sh -time=10":         "", // the script's
	} {
		hits, rest, _ := opt.Scan(names, strings.Fields(line), false)
		if got := opt.Misread(names, hits, rest[:min(1, len(rest))]); got != want && line != "-–mem=1G x.sh" {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
	// Letters that are options each are nothing else.
	squeue := []opt.Name{{Long: "all", Short: 'a'}, {Long: "long", Short: 'l'}}
	if hits, rest, err := opt.Scan(squeue, []string{"-all"}, true); err != nil || opt.Misread(squeue, hits, rest) != "" {
		t.Errorf("-all: %v, %v, %v", hits, rest, err)
	}
	for line, want := range map[string]string{
		"-gres=gpu:1":       "did you mean --gres=gpu:1, with two hyphens?",
		"-job-name=x":       "did you mean --job-name=x, with two hyphens?",
		"--tiem=5":          "did you mean --time?",
		"--partiton=x":      "did you mean --partition?",
		"--cpus-per-tsak=2": "did you mean --cpus-per-task?",
		"--xyzzy":           "",
	} {
		_, _, err := opt.Scan(names, []string{line}, false)
		if u, ok := err.(*opt.UsageError); !ok || u.Hint != want {
			t.Errorf("%s: %#v, want hint %q", line, err, want)
		}
	}
}

func TestHomes(t *testing.T) {
	t.Setenv("HOME", "/home/50%me")
	dir := t.TempDir()
	for line, want := range map[string]string{
		"-o ~/x-%j.out":      "/home/50%%me/x-%j.out",
		"-o ~root/x":         "/root/x",
		"-o ~x.out":          "~x.out",
		"-o a/~/x":           "a/~/x",
		"--output=~/x":       "/home/50%%me/x",
		"-o ~no.such.user/x": "error",
	} {
		r := New(Sbatch, dir, now, nil)
		hits, _, err := opt.Scan(Names(Sbatch), strings.Fields(line), false)
		if err != nil {
			t.Fatal(err)
		}
		err = r.Apply(Script, hits[0])
		if got := r.Spec.StdOut; (err != nil) != (want == "error") || err == nil && got != want {
			t.Errorf("%s: %q, %v; want %q", line, got, err, want)
		}
	}
	r := New(Sbatch, dir, now, nil)
	r.Home = "/home/owner"
	for _, h := range []string{"-e ~/e", "-i ~/i", "-D ~", "--export-file=~/f"} {
		hits, _, _ := opt.Scan(Names(Sbatch), strings.Fields(h), false)
		if err := r.Apply(Script, hits[0]); err != nil {
			t.Fatal(err)
		}
	}
	if s := r.Spec; s.StdErr != "/home/owner/e" || s.StdIn != "/home/owner/i" || s.WorkDir != "/home/owner" ||
		r.ExportFile != "/home/owner/f" {
		t.Errorf("%q %q %q %q", s.StdErr, s.StdIn, s.WorkDir, r.ExportFile)
	}
}

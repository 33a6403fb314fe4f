package batchscript

import (
	"reflect"
	"strings"
	"testing"
)

func TestOverlook(t *testing.T) {
	for script, want := range map[string]Overlooked{
		"#!/bin/sh\n#SBATCH -n1\ntrue\n":                                      {First: 3},
		"#!/bin/sh\ntrue\n\n#SBATCH -n1\n#SBATCH -t5\n":                       {First: 2, Late: []int{4, 5}},
		"#!/bin/sh\n# SBATCH -n1\n#sbatch -t5\n  #SBATCH --x\n##SBATCH -n1\n": {Almost: []int{2, 3, 4}},
		"#!/bin/sh\n# how SBATCH lines work\n#SBATCH--time=5\n":               {},
		"#!/bin/sh\ncat >j <<EOF\n#SBATCH -n1\nEOF\nsbatch j\n":               {First: 2},
		"#!/bin/sh\ncat >j <<-'EOF'\n#SBATCH -n1\n\tEOF\n#SBATCH -t1\n":       {First: 2, Late: []int{5}},
		"#!/bin/sh\ncat >j <<<EOF\n#SBATCH -n1\n":                             {First: 2, Late: []int{3}},
		"": {},
	} {
		if got := Overlook([]byte(script)); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, want %+v", script, got, want)
		}
	}
	if got := Lines([]int{3}); got != "line 3" {
		t.Error(got)
	}
	if got := Lines([]int{1, 2, 3, 4, 5, 6, 7}); got != "lines 1, 2, 3, 4, 5 and 2 others" {
		t.Error(got)
	}
}

// TestMissing: a call of a command that is not there is found, and neither its name in other places nor commands that are there.
func TestMissing(t *testing.T) {
	for script, want := range map[string]int{
		"#!/bin/sh\nsbcast a b\nsgather f /tmp/f\n":        3,
		"#!/bin/sh\ntrue && /usr/bin/strigger --set\n":     2,
		"#!/bin/sh\nx=$(strigger --get)\n":                 2,
		"#!/bin/sh\n# strigger\necho sgather\nsrun true\n": 0,
		"#!/bin/sh\ncat <<E\nsgather\nE\ntrue\n":           0,
	} {
		if line, name := Missing([]byte(script)); line != want {
			t.Errorf("%q: line %d calls %q, want line %d", script, line, name, want)
		}
	}
}

func TestInterpreter(t *testing.T) {
	for _, c := range []struct {
		script, words, want string
	}{
		{"import os\n", "train.py", `train.py is not a shell script; to run it in a job: sbatch --wrap="python3 train.py"`},
		{"import os\n", "a/train.py --lr 0.1", `sbatch --wrap="python3 a/train.py --lr 0.1"`},
		{"x <- 1\n", "fit.R", `sbatch --wrap="Rscript fit.R"`},
		{"x = 1\n", "run.jl", `sbatch --wrap="julia run.jl"`},
		{"\x7fELF\x02", "./a.out 5", `./a.out is a program, not a script; to run it in a job: sbatch --wrap="./a.out 5"`},
		{"\xef\xbb\xbf#!/bin/sh\n", "x.sh", `byte order mark (U+FEFF)`},
		{"\xff\xfe#\x00", "x.sh", `iconv -f UTF-16 -t UTF-8 x.sh`},
		{"\n\n#!/bin/sh\n", "x.sh", "the #! is in line 3 of x.sh"},
		{"  #!/bin/sh\n", "x.sh", "there are blanks before the #! of x.sh"},
		{"echo hello world\n", "x.sh", `the first line of x.sh is "echo hello world"; if this is a shell script, put #!/bin/bash above it`},
		{"echo hello\n", "", `the first line of the script is "echo hello"`},
	} {
		fault, ok := Check([]byte(c.script), strings.Fields(c.words)).(*Fault)
		if !ok || !strings.Contains(fault.Hint, c.want) {
			t.Errorf("%q as %q: %v, want %q", c.script, c.words, fault, c.want)
		}
	}
	crlf, _ := Check([]byte("#!/bin/sh\r\n"), []string{"x.sh"}).(*Fault)
	if crlf == nil || !strings.Contains(crlf.Hint, `sed -i 's/\r$//' x.sh`) {
		t.Errorf("line breaks of DOS: %v", crlf)
	}
}

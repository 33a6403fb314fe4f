package batchscript

import (
	"reflect"
	"strings"
	"testing"
)

func TestTranslate(t *testing.T) {
	for script, want := range map[string]string{
		"#PBS -N name\n":                            "--job-name=name",
		"#PBS -Nname\n":                             "--job-name=name",
		"#PBS -l walltime=00:10:00\n":               "--time=00:10:00",
		"#PBS -l nodes=2:ppn=4,mem=4gb\n":           "--nodes=2 --ntasks-per-node=4 --mem=4G",
		"#PBS -l select=1:ncpus=8:ngpus=2:mem=1t\n": "--nodes=1 --mincpus=8 --gres=gpu:2 --mem=1T",
		"#PBS -q batch@server -A acct\n":            "--partition=batch --account=acct",
		"#PBS -m abe -M me@x.y\n":                   "--mail-type=FAIL,BEGIN,END --mail-user=me@x.y",
		"#PBS -j oe -r n -V\n":                      "--no-requeue --export=ALL",
		"#PBS -W depend=afterok:12\n":               "--dependency=afterok:12",
		"#PBS -v A=1,B\n":                           "--export=ALL,A=1,B",
		"#BSUB -J \"arr[1-10]%2\" -n 4\n":           "--job-name=arr --array=1-10%2 --ntasks=4",
		"#BSUB -W 1:30\n#BSUB -q q -P proj\n":       "--time=1:30:00 --partition=q --account=proj",
		"#BSUB -m \"n1 n2\" -x\n":                   "--nodelist=n1,n2 --exclusive",
		// Values attached to their options; what a real sbatch makes of them, but for hours in -W and arrays.
		"#BSUB -o/dev/null -W1 -x -qdebug\n":      "--output=/dev/null --time=1 --exclusive --partition=debug",
		"#BSUB -Jname -n4 -e/tmp/e -M1000\n":      "--job-name=name --ntasks=4 --error=/tmp/e --mem-per-cpu=1000K",
		"#BSUB -W1:30 -mn2 -cwd /tmp -rn\n":       "--time=1:30:00 --nodelist=n2 --chdir=/tmp --no-requeue",
		"#BSUB -x -oo out\n":                      "--exclusive --output=out",
		"#PBS -lnodes=2:ppn=2 -qdebug\n":          "--nodes=2 --ntasks-per-node=2 --partition=debug",
		"#PBS -l nodes=2+ppn=2,mem=\n":            "--nodes=2 --ntasks-per-node=2 --mem=",
		"#PBS -l nodes=n1+n2\n":                   "--nodelist=n1,n2",
		"#PBS -l nodes=2:bigmem:ppn=2\n":          "--nodes=2 --constraint=bigmem --ntasks-per-node=2",
		"#PBS -l cput=10,nice=5,procs=4 -p 5\n":   "--time=10 --nice=5 --ntasks=4 --nice=5",
		"#PBS -l select=2:mem=100mb,place=excl\n": "--nodes=2 --mem=100M --exclusive",
		"#PBS -h -N a -a 2230\n":                  "--hold --job-name=a --begin=22:30",
		"#PBSx -N a\n#SBATCH -n1\n":               "",
		"true\n#PBS -N late\n":                    "",
	} {
		found, unread := Translate([]byte("#!/bin/sh\n" + script))
		var words []string
		for _, d := range found {
			words = append(words, d.Words...)
		}
		if got := strings.Join(words, " "); got != want || len(unread) > 0 {
			t.Errorf("%q: %s, unread %q, want %s", script, got, unread, want)
		}
	}
	_,
		unread := Translate(
		[]byte("#PBS -N a\n#PBS -l nodes=2,feature=x\n#PBS -l nodes=1:ppn=2+2:ppn=1\n#PBS -I\n#BSUB -R \"select[mem>1]\"\n#PBS -N 'open\n"))
	if want := []string{"#PBS -l feature=x", "#PBS -l nodes=1:ppn=2+2:ppn=1", "#PBS -I", "#BSUB -R select[mem>1]",
		"#PBS -N 'open"}; !reflect.DeepEqual(unread, want) {
		t.Errorf("unread %q, want %q", unread, want)
	}
}

func FuzzTranslate(f *testing.F) {
	for _, s := range []string{"#PBS -N a", "#PBS -l nodes=1:ppn=2", "#BSUB -J a[1]", "#PBS -l mem=b", "#PBS -m \xff", "#BSUB -n ,"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		found, _ := Translate(script)
		for _, d := range found {
			for _, w := range d.Words {
				if !strings.HasPrefix(w, "--") {
					t.Errorf("%q gives the word %q", script, w)
				}
			}
		}
	})
}

package conf

import (
	"slices"
	"strings"
	"testing"
)

// TestGresCores: cores that a node has not are left out when it registers, so conf check says so.
func TestGresCores(t *testing.T) {
	slurm := head + "GresTypes=gpu,nic\nNodeName=a[1-2] CPUs=8 CoresPerSocket=4 ThreadsPerCore=2 Gres=gpu:1\n" +
		"NodeName=b1 CPUs=16 Gres=gpu:1\nNodeName=c1 CPUs=2\nPartitionName=p Nodes=ALL\n"
	for gres, want := range map[string]string{
		"Name=gpu File=/dev/g0 Cores=0-3":              "",
		"NodeName=b1 Name=gpu File=/dev/g0 Cores=8-15": "",
		"NodeName=a1 Name=gpu File=/dev/g0 Cores=4-7":  "gres.conf:1: Cores= goes up to 7, but a1 has cores 0-3",
		"Name=gpu File=/dev/g0 Cores=0-1,4-5":          "", // with the second threads of cores 0 and 1
		"Name=gpu File=/dev/g0 Cores=0-8":              "gres.conf:1: Cores= goes up to 8, but a[1-2] has cores 0-3",
		"Name=gpu File=/dev/g0 CPUs=0,16":              "gres.conf:1: Cores= goes up to 16, but b1 has cores 0-15",
		"Name=nic Count=1 Cores=99":                    "", // no node has one
	} {
		c, err := Load("/slurm.conf", files{"slurm.conf": slurm, "gres.conf": gres + "\n"}.options())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, w := range c.Warnings {
			if text := w.Error(); strings.Contains(text, "Cores=") {
				got = append(got, text)
			}
		}
		if want == "" && len(got) > 0 || want != "" && !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, want) }) {
			t.Errorf("%s: %q, want %q", gres, got, want)
		}
	}
}

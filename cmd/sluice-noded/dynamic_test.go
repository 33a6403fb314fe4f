package main

import (
	"strings"
	"testing"
)

// TestNodeConf: with -Z, --conf KEY=VALUE is what slurmd(8) takes it for; anything else is slurm.conf.
func TestNodeConf(t *testing.T) {
	for in, want := range map[string]string{
		"d --conf /etc/a=b":                    "d --conf /etc/a=b",
		"d -Z --conf /etc/slurm.conf":          "d -Z --conf /etc/slurm.conf",
		"d -Z --conf=/etc/slurm.conf":          "d -Z --conf=/etc/slurm.conf",
		"d -Z --conf Feature=a":                "d -Z --node-conf Feature=a",
		"d --conf=Feature=a --dynamic":         "d --node-conf=Feature=a --dynamic",
		"d -Z -f /x --conf Gres=gpu:1 -N n1":   "d -Z -f /x --node-conf Gres=gpu:1 -N n1",
		"d -Z --conf":                          "d -Z --conf",
		"d -Z --conf /etc/x --node-conf CPUs=": "d -Z --conf /etc/x --node-conf CPUs=",
	} {
		if got := strings.Join(nodeConf(strings.Split(in, " ")), " "); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}

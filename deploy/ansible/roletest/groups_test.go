package roletest

import "testing"

// TestGroups: hosts are what groups and slurm_roles of other collections make them.
func TestGroups(t *testing.T) {
	const deepops = "[slurm-master]\nmgmt01\n[slurm-node]\ngpu01\n[slurm-login:children]\nslurm-master\n" +
		"[slurm-cluster:children]\nslurm-master\nslurm-node\nslurm-login\n"
	for name, c := range map[string]struct {
		inventory string
		args      []string
		want      string // controllers; nodes; login hosts
	}{
		"the controller of DeepOps is a login host": {inventory: deepops, want: "mgmt01;gpu01;"},
		"a login host that is a node":               {inventory: "[controller]\nhead\n[nodes]\nn1\n[login]\nn1\nl1\n", want: "head;n1;l1"},
		"one host with all roles":                   {inventory: "one slurm_roles=\"['controller','exec','dbd']\"\n", want: "one;one;"},
		"roles of hosts beside the limit": {inventory: "head slurm_roles=\"['controller']\"\ng1 slurm_roles=\"['exec']\"\n",
			args: []string{"--limit=g1"}, want: ";g1;"},
	} {
		t.Run(name, func(t *testing.T) {
			const groups = "groups['sluice_controllers'] | default([]) | join(',') }};{{ groups['sluice_nodes'] | default([]) | join(',') }};" +
				"{{ groups['sluice_logins'] | default([]) | join(',') }}"
			r := play{inventory: c.inventory, args: c.args, tasks: "- debug: {msg: \"is={{ " + groups + "=\"}\n"}.good(t)
			if !r.says("is=" + c.want + "=") {
				t.Errorf("want %q\n%s", c.want, r.out)
			}
		})
	}
}

// TestControllers: there has to be one, in whichever way it is said.
func TestControllers(t *testing.T) {
	for inventory, want := range map[string]string{
		"[nodes]\nn1\n": "give it slurm_roles: [controller].",
		"[slurmservers]\na\n[other]\nb slurm_roles=\"['controller']\"\n": "has 2 controllers (a, b)",
	} {
		r := play{inventory: inventory}.run(t)
		if r.err == nil || !r.says(want) {
			t.Errorf("%v: nobody says %q\n%s", r.err, want, r.out)
		}
	}
}

package roletest

import "testing"

// TestNoiseBeforeTheProbe: what sudo says on the way does not hide what the preflight finds.
func TestNoiseBeforeTheProbe(t *testing.T) {
	r := play{inventory: "[controller]\nhead\n", hosts: "head", vars: map[string]any{"ansible_python_interpreter": "noisy",
		"sluice_preflight": false}, programs: map[string]string{"noisy": "#!/bin/sh\n" +
		"case $* in *probe.py*) echo 'sudo: unable to resolve host head: Name or service not known' ;; esac\n" +
		"exec /usr/bin/python3 \"$@\"\n"},
		tasks: "- file: common/preflight\n- debug: {msg: 'systemd is {{ sluice_found.init }}.'}\n"}.good(t)
	if !r.says("systemd is ") {
		t.Errorf("%s", r.out)
	}
}

// TestPortOfTheNameInUse: the port is looked for at the name that slurm.conf has, and so the host's token.
func TestPortOfTheNameInUse(t *testing.T) {
	r := play{inventory: "[controller]\nhead ansible_host=127.0.0.1\n[nodes]\nn1\n", hosts: "n1",
		vars:  map[string]any{"slurm_config": map[string]any{"SlurmctldHost": "head.invalid"}, "sluice_port_seconds": 1},
		tasks: "- file: common/ports\n- debug: {var: sluice_port_problem}\n"}.good(t)
	if !r.says("the name head.invalid of the controller is not known here") || !r.says("SlurmctldHost=head.invalid(ADDRESS)") {
		t.Errorf("%s", r.out)
	}
}

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

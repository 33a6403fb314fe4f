package roletest

import "testing"

// TestUsable: the controller can use a node that is connected, whatever else it says of it.
func TestUsable(t *testing.T) {
	const inventory = "[controller]\nhead\n[nodes]\nn1\nn2\nn3\n"
	r := play{inventory: inventory, hosts: "n1,n2,n3", vars: map[string]any{"sluice_node_patience": 1}, tasks: "- file: node/usable\n",
		programs: map[string]string{"sluice": `#!/bin/sh
case $* in *--nodes=n1*) echo "idle*  none" ;; *n2*) echo "mixed$  none" ;; *n3*) echo "down  disk" ;; esac
`}}.run(t)
	for _, says := range []string{"n1 has joined and its daemon runs, but the controller says of it: idle* none",
		"n3 has joined and its daemon runs, but the controller says of it: down disk"} {
		if !r.says(says) {
			t.Errorf("nobody says %q", says)
		}
	}
	if r.err == nil || r.says("n2 has joined") || t.Failed() {
		t.Errorf("%v\n%s", r.err, r.out)
	}
}

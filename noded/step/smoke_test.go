package step_test

import "testing"

func TestSmoke(t *testing.T) {
	n := newNode(t)
	b := n.bundle()
	rec := n.run(b, "id; umask; pwd; exit 3")
	t.Logf("%v %q", rec, n.output(b))
}

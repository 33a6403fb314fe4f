package cli

import (
	"testing"

	"github.com/sluice-hpc/sluice/client/admin"
)

// TestHelpListsEveryVerb: `sluice help` and package admin each have a list.
func TestHelpListsEveryVerb(t *testing.T) {
	listed := map[string]bool{}
	for _, v := range Verbs() {
		listed[v[0]] = true
	}
	for _, c := range admin.Verbs(nil) {
		if !listed[c.Name] {
			t.Errorf("sluice help does not list %s", c.Name)
		}
		delete(listed, c.Name)
	}
	delete(listed, "explain") // of this package, as is the next
	delete(listed, "gpus")
	for name := range listed {
		t.Errorf("sluice help lists %s, which is no verb", name)
	}
}

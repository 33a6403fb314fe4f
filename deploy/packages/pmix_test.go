package packages_test

import (
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

// TestPMIxIsRecommended: the node daemon's package has the PMIx server where it could be built, and can be installed without its library.
func TestPMIxIsRecommended(t *testing.T) {
	need(t, "dpkg-deb")
	if exec.Command("pkg-config", "--exists", "pmix").Run() != nil {
		t.Skip("there is no libpmix here: apt-get install libpmix-dev pkg-config")
	}
	node := files(t, "sluice-node_*_"+runtime.GOARCH+".deb")[0]
	if got := run(t, "dpkg-deb", "--contents", node); !strings.Contains(got, " ./usr/sbin/sluice-pmix\n") {
		t.Errorf("it has\n%s", got)
	}
	if got := run(t, "dpkg-deb", "--field", node, "Recommends"); got != "libpmix2\n" {
		t.Errorf("it recommends %q", got)
	}
	if got := run(t, "dpkg-deb", "--field", node, "Depends"); strings.Contains(got, "pmix") {
		t.Errorf("it depends on %q", got)
	}
}

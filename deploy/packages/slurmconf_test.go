package packages_test

import (
	"net/netip"
	"testing"

	"github.com/sluice-hpc/sluice/conf"
)

// TestFirstConfiguration: the slurm.conf that the package makes needs no name service, which would hold apt up.
func TestFirstConfiguration(t *testing.T) {
	c, err := conf.Load("files/slurm.conf", conf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := netip.ParseAddr(c.SlurmctldHosts[0].Addr); err != nil {
		t.Errorf("the address of the controller is a name: %v", err)
	}
	if len(c.Warnings)+len(c.Ignored) > 0 {
		t.Errorf("warnings %v, without effect %v", c.Warnings, c.Ignored)
	}
}

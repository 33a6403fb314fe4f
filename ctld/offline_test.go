package ctld

import (
	"net"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/conf"
)

// TestOthersAreOff: a controller that answers on another host keeps a restore from happening; one of this host does not, it has a lock.
func TestOthersAreOff(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.2:0") // stands for another host
	if err != nil {
		t.Skip("this machine has no second loopback address: ", err)
	}
	defer l.Close()
	c := &conf.Config{SlurmctldPort: l.Addr().(*net.TCPAddr).Port, SlurmctldHosts: []conf.Host{
		{Name: "gone", Addr: "host.invalid"}, {Name: "this", Addr: "127.0.0.1"}}}
	own := []net.Addr{&net.IPNet{IP: net.IPv4(127, 0, 0, 1), Mask: net.CIDRMask(32, 32)}}
	if err := othersAreOff(c, own); err != nil {
		t.Error(err)
	}
	c.SlurmctldHosts = append(c.SlurmctldHosts, conf.Host{Name: "old", Addr: "127.0.0.2"})
	if err := othersAreOff(c, own); err == nil || !strings.Contains(err.Error(), "the controller on old (127.0.0.2, port") {
		t.Error(err)
	}
}

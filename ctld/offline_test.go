package ctld

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-hpc/sluice/conf"
	"github.com/sluice-hpc/sluice/internal/mtls"
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

// TestIssueAtOnce: commands that make certificates at the same time, as when `sluice up` is killed and called again, have one authority.
func TestIssueAtOnce(t *testing.T) {
	for range 20 {
		state, out := t.TempDir(), t.TempDir()
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				if _, err := Issue(state, "n1", mtls.RoleNode, filepath.Join(out, strconv.Itoa(i)), true); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		authority, err := os.ReadFile(filepath.Join(state, "tls", "ca.crt"))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 4 {
			ca, _, _ := mtls.Paths(filepath.Join(out, strconv.Itoa(i)), mtls.RoleNode)
			if got, err := os.ReadFile(ca); err != nil || string(got) != string(authority) {
				t.Fatalf("host %d was given another authority than the controller has: %v", i, err)
			}
		}
	}
}

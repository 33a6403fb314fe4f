package rpc

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/ctld/nodeport"
	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/internal/version"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestHostProblems: which problems of a host are reported, and which are not.
func TestHostProblems(t *testing.T) {
	cfg := &state.Config{Settings: &state.Settings{Cluster: "test", ConfSum: "files", BundleHash: "bundle"}}
	v := state.New(cfg, "c", 1)
	now := time.Unix(1e9, 0)
	const day = int64(24 * time.Hour)
	for name, c := range map[string]struct {
		change func(n *state.Node)
		left   int64 // of the certificate's life of 30 days, in days; 0: 20
		want   string
		conf   string
	}{
		"well":     {conf: "current"},
		"no files": {change: func(n *state.Node) { n.ConfHash, n.ConfFetched = "bundle", true }, conf: "current"},
		"behind": {change: func(n *state.Node) { n.ConfHash, n.ConfFetched = "old", true },
			want: "its configuration is behind (old, not bundle)", conf: "behind"},
		"different": {change: func(n *state.Node) { n.ConfHash = "mine" },
			want: "its slurm.conf differs from the controller's (mine, not files)", conf: "different"},
		"does not say": {change: func(n *state.Node) { n.ConfHash = "" }},
		"release": {change: func(n *state.Node) { n.Version = "0.0.9" },
			want: "its release is 0.0.9, the controller's " + version.Sluice, conf: "current"},
		"clock": {change: func(n *state.Node) { n.ClockOffNs = -90e9 },
			want: "its clock is 1m30s behind the controller's", conf: "current"},
		"forgetful": {change: func(n *state.Node) { n.UntoldNs = 3600e9 }, conf: "current",
			want: "the state was restored from a backup, and the node has no record of jobs before 1970-01-01T01:00:00Z: older " +
				"jobs wait for scontrol update NodeName=n1 State=RESUME Reason=…"},
		"gone":         {change: func(n *state.Node) { n.LinkUp = false }, want: "it is not connected", conf: "current"},
		"powered down": {change: func(n *state.Node) { n.LinkUp, n.StateFlags = false, pb.NodePoweredDown }, conf: "current"},
		"reboots":      {change: func(n *state.Node) { n.LinkUp, n.StateFlags = false, pb.NodeRebootIssued }, conf: "current"},
		"refused": {change: func(n *state.Node) {
			n.LinkUp, n.StateFlags, n.Reason = false, pb.NodeInvalidReg, "Clock: it shows 1999"
		},
			want: "it shows 1999", conf: "current"},
		"renewed in time": {left: 11, conf: "current"},
		"not renewed":     {left: 4, want: "its certificate expires in 96h0m0s and has not been renewed", conf: "current"},
		"expired":         {left: -1, want: "its certificate has expired", conf: "current"},
	} {
		n := &state.Node{LinkUp: true, LinkNS: 5, NodeRecord: &pb.NodeRecord{Name: "n1", State: pb.NodeState_NODE_IDLE,
			Version: version.Sluice, ConfHash: "files"}}
		if c.change != nil {
			c.change(n)
		}
		if c.left == 0 {
			c.left = 20
		}
		h := nodeInfo(v, n)
		ends := now.UnixNano() + c.left*day
		expiry(h, &pb.CertificateInfo{IssuedNs: ends - 30*day, ExpiresNs: ends}, now)
		judgeHost(h)
		if got := strings.Join(h.Problems, "; "); got != c.want || h.Configuration != c.conf || (h.SinceNs != 0) != n.LinkUp {
			t.Errorf("%s: %q, configuration %q, connected since %d; want %q, %q", name, got, h.Configuration, h.SinceNs, c.want, c.conf)
		}
	}
}

// TestLoginHost: the facts about a host that is not a node come with its calls.
func TestLoginHost(t *testing.T) {
	for _, c := range []struct {
		ahead time.Duration
		want  int64
	}{{2 * time.Second, 0}, {time.Minute, int64(time.Minute)}, {-time.Minute, -int64(time.Minute)}} {
		h := &pb.HostInfo{Name: "l1", Role: "login"}
		by(h, nodeport.Shown{Serial: "1", Open: 1, Since: time.Unix(0, 7), Release: "0.2", Ahead: c.ahead})
		if h.SinceNs != 7 || h.Version != "0.2" || h.ClockOffNs != c.want {
			t.Errorf("%v ahead: %v", c.ahead, h)
		}
	}
}

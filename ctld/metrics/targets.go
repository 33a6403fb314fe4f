package metrics

import (
	"net"

	"github.com/sluice-hpc/sluice/internal/metrics"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TargetsPath is the page with Prometheus' targets (http_sd_configs).
const TargetsPath = "/targets.json"

// target is one node in the form of Prometheus' HTTP service discovery.
type target struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// targetsPage lists the nodes that should answer, including those that are down or serve no other host: a target that cannot be read is
// noticed, a missing one is not.
func (s *Source) targetsPage(p *metrics.Page, _ bool) error {
	all := []target{}
	for _, n := range s.View().Nodes() {
		if n.State == pb.NodeState_NODE_FUTURE || n.StateFlags&(pb.NodePoweredDown|pb.NodePoweringDown) != 0 {
			continue
		}
		all = append(all, target{[]string{net.JoinHostPort(n.Addr, metrics.NodePort)}, map[string]string{"instance": n.Name}})
	}
	return p.JSON(all)
}

package cli

import (
	"fmt"
	"strings"

	"github.com/sluice-hpc/sluice/client/format"
	pb "github.com/sluice-hpc/sluice/client/msg"
)

// configKeyWidth is where the equals signs of scontrol show config stand.
const configKeyWidth = 23

func (s *show) config(id string) int {
	c, code := s.dial("slurm_load_ctl_conf")
	if c == nil {
		return code
	}
	defer func() { _ = c.Close() }()
	reply, err := c.Config(s.ctx, &pb.ConfigRequest{})
	if err != nil {
		return s.failed("slurm_load_ctl_conf", err)
	}
	fc := s.env.formatContext(reply.GetNowNs())
	b := append(fc.AppendTime(append([]byte(nil), "Configuration data as of "...), fc.Now.UnixNano(), ""), '\n')
	for _, pair := range reply.GetPairs() {
		if id != "" && !strings.HasPrefix(strings.ToLower(pair.GetKey()), strings.ToLower(id)) {
			continue
		}
		value := pair.GetValue()
		if value == "" {
			value = "(null)"
		}
		b = fmt.Appendf(b, "%-*s = %s\n", configKeyWidth, format.Escape(pair.GetKey()), format.Escape(value))
	}
	if ping, err := c.Ping(s.ctx, &pb.PingRequest{}); err == nil {
		b = fmt.Appendf(b, "\nSlurmctld(%s) at %s is UP\n", format.Escape(ping.GetMode()), format.Escape(ping.GetHost()))
	}
	return s.out(b)
}

// daemons says which daemons the configuration wants on this host.
func (s *show) daemons(string) int {
	c, code := s.dial("slurm_load_ctl_conf")
	if c == nil {
		return code
	}
	defer func() { _ = c.Close() }()
	var names []string
	if ping, err := c.Ping(s.ctx, &pb.PingRequest{}); err == nil && sameHost(ping.GetHost()) {
		names = append(names, "slurmctld")
	}
	if len(s.localNodes(c)) > 0 {
		names = append(names, "slurmd")
	}
	return s.out(append([]byte(strings.Join(names, " ")), '\n'))
}

// aliases lists the nodes that a host is, this one when none is named.
func (s *show) aliases(host string) int {
	if host != "" && !sameHost(host) {
		return s.out(nil)
	}
	c, code := s.dial("slurm_load_node")
	if c == nil {
		return code
	}
	defer func() { _ = c.Close() }()
	names := s.localNodes(c)
	if len(names) == 0 {
		return 1
	}
	return s.out([]byte(format.Escape(strings.Join(names, " ")) + "\n"))
}

func (s *show) localNodes(c pb.ControllerAPIClient) []string {
	var names []string
	stream, err := c.Nodes(s.ctx, &pb.NodesRequest{})
	if err != nil {
		return nil
	}
	_ = eachPage(stream.Recv, func(p *pb.NodesReply) {
		for _, n := range p.GetNodes() {
			if sameHost(n.GetHostname()) {
				names = append(names, n.GetName())
			}
		}
	})
	return names
}

// sameHost compares short names.
func sameHost(name string) bool {
	short, _, _ := strings.Cut(name, ".")
	return short != "" && short == shortHostname()
}

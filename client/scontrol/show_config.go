package scontrol

import (
	"fmt"
	"strings"

	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/view"
)

func (s *show) config(id string) int {
	c, code := s.dial("slurm_load_ctl_conf")
	if c == nil {
		return code
	}
	defer func() { _ = c.Close() }()
	reply, err := c.Config(s.ctx, &msg.ConfigRequest{})
	if err != nil {
		return s.failed("slurm_load_ctl_conf", err)
	}
	fc := view.Context(s.env, reply.GetNowNs())
	b := append(fc.AppendTime(append([]byte(nil), "Configuration data as of "...), fc.Now.UnixNano(), ""), '\n')
	for _, pair := range reply.GetPairs() {
		if pair.GetKey() == "BOOT_TIME" {
			pair.Value = string(fc.AppendTime(nil, reply.GetBootNs(), ""))
		}
	}
	b = appendPairs(b, "", "%-23s = %s\n", reply.GetPairs(), id)
	b = appendPairs(b, "\nCgroup Support Configuration:\n", "%-23s = %s\n", reply.GetCgroup(), id)
	// indented, because scripts search for a key at the beginning of a line
	b = appendPairs(b, "\nWithout effect:\n", "  %s: %s\n", reply.GetIgnored(), id)
	if ping, err := c.Ping(s.ctx, &msg.PingRequest{}); err == nil {
		b = fmt.Appendf(b, "\nSlurmctld(%s) at %s is UP\n", format.Escape(ping.GetMode()), format.Escape(ping.GetHost()))
	}
	return s.out(b)
}

// appendPairs appends the pairs whose key begins with prefix, below a title if there are any.
func appendPairs(b []byte, title, form string, pairs []*msg.KeyValue, prefix string) []byte {
	for _, pair := range pairs {
		if !strings.HasPrefix(strings.ToLower(pair.GetKey()), strings.ToLower(prefix)) {
			continue
		}
		value := pair.GetValue()
		if value == "" {
			value = "(null)"
		}
		b = append(b, title...)
		b = fmt.Appendf(b, form, format.Escape(pair.GetKey()), format.Escape(value))
		title = ""
	}
	return b
}

// daemons prints which daemons the configuration has on this host.
func (s *show) daemons(string) int {
	c, code := s.dial("slurm_load_ctl_conf")
	if c == nil {
		return code
	}
	defer func() { _ = c.Close() }()
	var names []string
	if ping, err := c.Ping(s.ctx, &msg.PingRequest{}); err == nil && sameHost(ping.GetHost()) {
		names = append(names, "slurmctld")
	}
	if len(s.localNodes(c)) > 0 {
		names = append(names, "slurmd")
	}
	return s.out(append([]byte(strings.Join(names, " ")), '\n'))
}

// aliases lists the nodes on a host, by default this one.
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

func (s *show) localNodes(c msg.ControllerAPIClient) []string {
	var names []string
	stream, err := c.Nodes(s.ctx, &msg.NodesRequest{})
	if err != nil {
		return nil
	}
	_ = view.EachPage(stream.Recv, func(p *msg.NodesReply) {
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
	return short != "" && short == command.ShortHostname()
}

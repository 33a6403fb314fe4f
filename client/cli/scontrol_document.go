package cli

import (
	"time"

	"github.com/sluice-hpc/sluice/client/format"
	pb "github.com/sluice-hpc/sluice/client/msg"
)

// nodesDocument writes the nodes that were asked for; those that do not exist are said on standard output by the table alone, here
// they are missing and the exit code says so.
func (s *show) nodesDocument(fc *format.Context, want []string, byName map[string]*pb.NodeRecord) int {
	doc, missing := s.env.newDocument(s.opts.document, "nodes"), 0
	doc.begin()
	for _, name := range want {
		if n := byName[name]; n != nil {
			format.WriteNode(doc.Writer, fc, n)
			continue
		}
		missing = s.complain("Node " + format.Escape(name) + " not found")
	}
	return max(missing, doc.finish(nil, func() { doc.Seconds("last_update", fc.Now.UnixNano()) }))
}

func (s *show) partitionsDocument(fc *format.Context, list []*pb.PartitionRecord) int {
	doc := s.env.newDocument(s.opts.document, "partitions")
	doc.begin()
	for _, p := range list {
		format.WritePartition(doc.Writer, "", p)
	}
	return doc.finish(nil, func() { doc.Seconds("last_update", fc.Now.UnixNano()) })
}

func (s *show) licensesDocument(list []*pb.LicenseRecord, id string) int {
	doc := s.env.newDocument(s.opts.document, "licenses")
	doc.begin()
	for _, l := range list {
		if id == "" || l.GetName() == id {
			format.WriteLicense(doc.Writer, l)
		}
	}
	return doc.finish(nil, func() { doc.Seconds("last_update", s.env.Now().UnixNano()) })
}

// pingDocument is scontrol ping --json; the answer, or the failure, took so long.
func (c *control) pingDocument(r *pb.PingReply, took time.Duration, err error) int {
	doc := c.env.newDocument(c.opts.document, "pings")
	doc.begin()
	host, mode, pinged := r.GetHost(), r.GetMode(), "UP"
	if err != nil {
		host, mode, pinged = shortHostname(), "primary", "DOWN"
	}
	doc.Object("")
	doc.Str("hostname", host)
	doc.Str("pinged", pinged)
	doc.Bool("responding", err == nil)
	doc.Int("latency", took.Microseconds())
	doc.Str("mode", mode)
	doc.Bool("primary", mode == "primary")
	doc.End()
	code := doc.finish(nil, nil)
	if err != nil {
		return c.env.errorExit()
	}
	return code
}

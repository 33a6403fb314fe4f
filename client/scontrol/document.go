package scontrol

import (
	"time"

	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/format/doc"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/view"
)

// nodesDocument writes the requested nodes. Nodes that do not exist are missing in the document, and the exit code reports it.
func (s *show) nodesDocument(fc *format.Context, want []string, byName map[string]*msg.NodeRecord) int {
	out, missing := view.NewDocument(s.env, s.opts.document, "nodes"), 0
	out.Begin()
	for _, name := range want {
		if n := byName[name]; n != nil {
			doc.WriteNode(out.Writer, fc, n)
			continue
		}
		missing = s.complain("Node " + format.Escape(name) + " not found")
	}
	return max(missing, out.Finish(nil, func() { out.Seconds("last_update", fc.Now.UnixNano()) }))
}

func (s *show) partitionsDocument(fc *format.Context, list []*msg.PartitionRecord) int {
	out := view.NewDocument(s.env, s.opts.document, "partitions")
	out.Begin()
	for _, p := range list {
		doc.WritePartition(out.Writer, "", p)
	}
	return out.Finish(nil, func() { out.Seconds("last_update", fc.Now.UnixNano()) })
}

func (s *show) licensesDocument(list []*msg.LicenseRecord, id string) int {
	out := view.NewDocument(s.env, s.opts.document, "licenses")
	out.Begin()
	for _, l := range list {
		if id == "" || l.GetName() == id {
			doc.WriteLicense(out.Writer, l)
		}
	}
	return out.Finish(nil, func() { out.Seconds("last_update", s.env.Now().UnixNano()) })
}

// pingDocument is scontrol ping --json; took is how long the answer or the failure took.
func (c *control) pingDocument(r *msg.PingReply, took time.Duration, err error) int {
	out := view.NewDocument(c.env, c.opts.document, "pings")
	out.Begin()
	host, mode, pinged := r.GetHost(), r.GetMode(), "UP"
	if err != nil {
		host, mode, pinged = command.ShortHostname(), "primary", "DOWN"
	}
	out.Object("")
	out.Str("hostname", host)
	out.Str("pinged", pinged)
	out.Bool("responding", err == nil)
	out.Int("latency", took.Microseconds())
	out.Str("mode", mode)
	out.Bool("primary", mode == "primary")
	out.End()
	code := out.Finish(nil, nil)
	if err != nil {
		return c.env.ErrorExit()
	}
	return code
}

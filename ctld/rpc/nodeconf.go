package rpc

import (
	"fmt"

	"github.com/sluice-hpc/sluice/ctld/state"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Configuration streams the present configuration to a host, and each later one. All hosts may see the same.
func (s *NodeServer) Configuration(_ *nodepb.ConfigurationRequest, stream grpc.ServerStreamingServer[pb.Configuration]) error {
	id, err := hostOf(stream.Context())
	if err != nil {
		return err
	}
	if s.Conf == nil {
		return status.Error(codes.FailedPrecondition, "this controller provides no configuration to hosts")
	}
	name := id.Name
	if err := s.inTurn(stream.Context(), name); err != nil {
		return status.FromContextError(err).Err()
	}
	for have := ""; ; {
		hash, signed, changed, err := s.Conf.Now()
		if err != nil {
			return status.Error(codes.FailedPrecondition, err.Error())
		}
		if hash != have {
			s.Log.Info("sending the configuration to a host", "host", name, "hash", short(hash))
			if err := stream.Send(signed); err != nil {
				return err
			}
			have = hash
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		}
	}
}

// short abbreviates a hash for people.
func short(hash string) string { return hash[:min(len(hash), 8)] }

// confNote describes what is wrong with a node's configuration; "" is nothing, or unknown.
func confNote(v *state.View, c *pb.ConfigurationState) string {
	want := v.Settings.ConfSum
	if c.GetFetched() {
		want = v.Settings.BundleHash
	}
	switch {
	case c.GetHash() == "" || want == "" || c.Hash == want && c.Error == "":
		return ""
	case !c.Fetched:
		return fmt.Sprintf("its slurm.conf differs from the controller's (%s, not %s)", short(c.Hash), short(want))
	case c.Error != "":
		return fmt.Sprintf("its configuration is behind (%s, not %s): %s", short(c.Hash), short(want), c.Error)
	}
	return fmt.Sprintf("its configuration is behind (%s, not %s)", short(c.Hash), short(want))
}

// judgeConf logs that a node has another configuration. It skips hosts that get their configuration from here: they are about to get it.
func (s *NodeServer) judgeConf(node string, c *pb.ConfigurationState) {
	note := confNote(s.Writer.View(), c)
	if note == "" || c.GetFetched() && c.GetError() == "" {
		return
	}
	due, left := s.says("configuration", node)
	if !due {
		return
	}
	s.Log.Warn("node "+node+" appears to have a different configuration than the controller", "node", node, "why", note,
		"left_out", left)
}

// showConf adds faults of a node's configuration to its diagnosis.
func showConf(v *state.View, n *state.Node, r *pb.NodeRecord) {
	note := confNote(v, &pb.ConfigurationState{Hash: n.ConfHash, Fetched: n.ConfFetched, Error: n.ConfError})
	if note != "" && r.Diagnosis != "" {
		note = r.Diagnosis + "; " + note
	}
	if note != "" {
		r.Diagnosis = note
	}
}

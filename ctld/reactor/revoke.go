package reactor

import (
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// RevokeHost shuts a host out: its certificates and tokens become invalid. The reply is Revoked.
type RevokeHost struct {
	Caller   Caller
	UserName string
	Name     string
}

// Revoked counts the certificates and tokens that were valid until then.
type Revoked struct{ Certificates, Tokens int }

// revokedReason is the reason of a node that was shut out. When it joins again it returns to service, as it was readmitted for that.
const revokedReason = "Certificate revoked"

// Handle revokes the known certificates one by one, and unknown ones by the host's name. The node of that name is set DOWN, with all
// consequences for its jobs: its reports cannot be trusted any more.
func (c RevokeHost) Handle(tx *state.Tx) any {
	if !c.Caller.Operator {
		return pb.NewProblem(pb.CodeAccessDenied, "only root and SlurmUser may revoke certificates")
	}
	if p := hostName(c.Name); p != nil {
		return p
	}
	old, node := tx.Host(c.Name), tx.Node(c.Name)
	var tokens []*pb.TokenRecord
	for _, t := range tx.View().Tokens() {
		if t.Node == c.Name && TokenState(t, tx.NowNS) != TokenExpired && !t.Revoked {
			tokens = append(tokens, t)
		}
	}
	if old == nil && node == nil && len(tokens) == 0 {
		return pb.NewProblem(pb.CodeInvalidNodeName, "there is no node %s, and no host of that name was given a certificate", c.Name).
			WithHint("`sluice certs` lists them")
	}
	out := Revoked{}
	h := state.CloneHost(old, c.Name)
	h.RevokedNs = tx.NowNS
	for i, r := range h.Certificates {
		if r.RevokedNs != 0 {
			continue
		}
		if r.ExpiresNs > tx.NowNS {
			out.Certificates++
		}
		h.Certificates[i] = state.CloneCertificate(r)
		h.Certificates[i].RevokedNs = tx.NowNS
	}
	tx.Emit(state.HostChanged{Host: h, What: "revoked"})
	for _, t := range tokens { // used ones too: their answer could be requested again
		if t.UsedNs == 0 {
			out.Tokens++
		}
		n := state.CloneToken(t)
		n.Revoked = true
		tx.Emit(state.TokenChanged{Token: n, What: "revoked together with its host"})
	}
	if node != nil && node.State != pb.NodeState_NODE_FUTURE {
		nodeDown(tx, c.Name, revokedReason, c.Caller, c.UserName)
	}
	return out
}

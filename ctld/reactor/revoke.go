package reactor

import (
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// RevokeHost shuts a host out: no certificate that it has been given until now counts any more, nor does a token for it. The reply is
// Revoked.
type RevokeHost struct {
	Caller   Caller
	UserName string
	Name     string
}

// Revoked counts what was worth something until then.
type Revoked struct{ Certificates, Tokens int }

// revokedReason is the reason of a node that was shut out. One that has joined again is used again: that is what it was let in for.
const revokedReason = "Certificate revoked"

// Handle revokes the certificates that are known, and by name those that are not. The node of that name is down, with all that follows for
// its jobs: what it does is nobody's to say any more.
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
	for _, t := range tokens { // also those that were used: their answer could be asked for again
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

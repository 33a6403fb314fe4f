package reactor

import (
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// RevokeToken invalidates a join token. The reply is the *pb.TokenRecord.
type RevokeToken struct {
	Caller Caller
	ID     string
}

// Handle refuses a token that is already invalid: an administrator who revokes a used token needs to know that it was used.
func (c RevokeToken) Handle(tx *state.Tx) any {
	if !c.Caller.Operator {
		return pb.NewProblem(pb.CodeAccessDenied, "only root and SlurmUser may revoke join tokens")
	}
	t := tx.Token(c.ID)
	if t == nil {
		return pb.NewProblem(pb.CodeInvalidSpec, "there is no token %q", c.ID).WithHint("`sluice token list` shows their ids")
	}
	switch s := TokenState(t, tx.NowNS); s {
	case TokenUsed:
		return pb.NewProblem(pb.CodeAlreadyDone, "%[2]s has joined with token %[1]s already", c.ID, t.Node).
			WithHint("to shut it out: `sluice node revoke %s`", t.Node)
	case TokenValid:
	default:
		return pb.NewProblem(pb.CodeAlreadyDone, "token %s is %s already", c.ID, s)
	}
	n := state.CloneToken(t)
	n.Revoked = true
	tx.Emit(state.TokenChanged{Token: n, What: "revoked"})
	return n
}

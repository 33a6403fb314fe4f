package reactor

import (
	"bytes"
	"cmp"
	"crypto/subtle"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Bounds of join tokens.
const (
	maxTokens   = 1000 // valid ones, and those of the last tokenMemory
	minTokenTTL = 10 * time.Second
	maxTokenTTL = 7 * 24 * time.Hour
	// tokenMemory is the time for which an invalid token is remembered, so that its user learns why it is invalid.
	tokenMemory = 24 * time.Hour
	maxHostName = 255
)

// CreateToken makes a token with which a host may join once. The reply is the *pb.TokenRecord.
type CreateToken struct {
	Caller  Caller
	Token   *pb.TokenRecord // without creation time
	AnyNode bool            // the token may be for a node that is not configured
}

// Handle checks the host of the token, and forgets old tokens.
func (c CreateToken) Handle(tx *state.Tx) any {
	if p := c.check(tx); p != nil {
		return p
	}
	dead, alive := []*pb.TokenRecord(nil), 0
	for _, t := range tx.View().Tokens() {
		if usable := TokenState(t, tx.NowNS) == TokenValid; usable {
			alive++
		} else if tx.NowNS-state.TokenExpires(t) > int64(tokenMemory) {
			tx.Emit(state.TokenChanged{Token: t, Gone: true, What: "forgotten"})
		} else {
			dead = append(dead, t)
		}
	}
	slices.SortFunc(dead, func(a, b *pb.TokenRecord) int { return cmp.Compare(a.CreatedNs, b.CreatedNs) })
	for ; len(dead) > 0 && alive+len(dead) >= maxTokens; dead = dead[1:] {
		tx.Emit(state.TokenChanged{Token: dead[0], Gone: true, What: "forgotten"})
	}
	t := state.CloneToken(c.Token)
	t.CreatedNs = tx.NowNS
	tx.Emit(state.TokenChanged{Token: t, What: "created"})
	return t
}

func (c CreateToken) check(tx *state.Tx) *pb.Problem {
	t, ttl := c.Token, time.Duration(c.Token.TtlNs)
	if p := hostName(t.Node); p != nil {
		return p
	}
	alive := 0
	for _, t := range tx.View().Tokens() {
		if TokenState(t, tx.NowNS) == TokenValid {
			alive++
		}
	}
	switch {
	case !c.Caller.Operator:
		return pb.NewProblem(pb.CodeAccessDenied, "only root and SlurmUser may create join tokens")
	case t.Role != state.RoleNode && t.Role != state.RoleLogin:
		return pb.NewProblem(pb.CodeInvalidSpec, "unknown role %q; use compute or login", t.Role)
	case ttl < minTokenTTL || ttl > maxTokenTTL:
		return pb.NewProblem(pb.CodeInvalidSpec, "a join token can be valid for %v to %v, not for %v", minTokenTTL, maxTokenTTL, ttl)
	case t.Role == state.RoleNode && !c.AnyNode && tx.Node(t.Node) == nil:
		return pb.NewProblem(pb.CodeInvalidNodeName, "node %s is not in the configuration of this cluster", t.Node).
			WithHint("add a NodeName line to slurm.conf and run scontrol reconfigure, or use --any-node")
	case t.Role == state.RoleLogin && tx.Node(t.Node) != nil:
		return pb.NewProblem(pb.CodeInvalidSpec, "%s is a node of this cluster: a login host runs no jobs and needs another name",
			t.Node)
	case alive >= maxTokens:
		return pb.NewProblem(pb.CodeDisabled, "there are %d unused join tokens", alive).WithHint("revoke some")
	case tx.Token(t.Id) != nil:
		return pb.NewProblem(pb.CodeInvalidSpec, "token %s exists already", t.Id)
	}
	return nil
}

// hostName refuses an invalid host name.
func hostName(name string) *pb.Problem {
	odd := func(r rune) bool {
		return !unicode.IsGraphic(r) || r == ' ' || r == '/' || r == unicode.ReplacementChar
	}
	if name == "" || len(name) > maxHostName || strings.ContainsFunc(name, odd) {
		return pb.NewProblem(pb.CodeInvalidSpec, "%q is not a host name: use 1 to %d printable characters without spaces and slashes", name,
			maxHostName)
	}
	return nil
}

// States of a token.
const (
	TokenValid   = "valid"
	TokenUsed    = "used"
	TokenExpired = "expired"
	TokenRevoked = "revoked"
)

// TokenState returns the current state of a token.
func TokenState(t *pb.TokenRecord, nowNS int64) string {
	switch {
	case t.Revoked:
		return TokenRevoked
	case t.UsedNs != 0:
		return TokenUsed
	case nowNS >= state.TokenExpires(t):
		return TokenExpired
	}
	return TokenValid
}

// JudgeToken returns the reason why a token does not admit this host with this key; nil: it does. A used token may be used again for the
// same key until it expires, because the answer may have been lost. A client without the secret learns nothing about the token.
func JudgeToken(t *pb.TokenRecord, secretHash []byte, node, role string, keyHash []byte, nowNS int64) *pb.Problem {
	refuse := func(format string, args ...any) *pb.Problem {
		return pb.NewProblem(pb.CodeAccessDenied, format, args...).
			WithHint("create a new one on the controller: sluice token create --node %s", node)
	}
	if t == nil || len(t.SecretHash) == 0 || subtle.ConstantTimeCompare(t.SecretHash, secretHash) != 1 {
		return refuse("unknown join token: it was not copied completely, belongs to an earlier cluster, or was created more than %v "+
			"ago", tokenMemory)
	}
	switch {
	case t.Node != node:
		return refuse("the join token is for host %s, not for %s", t.Node, node)
	case t.Role != role:
		return refuse("the join token is for role %s, not for %s", t.Role, role)
	case t.Revoked:
		return refuse("the join token for %s was revoked", node)
	case nowNS >= state.TokenExpires(t):
		return refuse("the join token for %s expired %v ago, by the controller's clock", node,
			time.Duration(nowNS-state.TokenExpires(t)).Round(time.Second))
	case t.UsedNs != 0 && !bytes.Equal(t.KeyHash, keyHash):
		return refuse("the join token for %s was used %v ago, for another key; if you did not use it, run `sluice node revoke %s`", node,
			time.Duration(nowNS-t.UsedNs).Round(time.Second), node)
	}
	return nil
}

package reactor

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

func (b *bench) makeToken(id, node, role string) any {
	b.t.Helper()
	return b.do(CreateToken{Caller: root, Token: &pb.TokenRecord{Id: id, SecretHash: []byte("hash"), Node: node, Role: role,
		TtlNs: int64(time.Minute)}})
}

func (b *bench) join(id, key string) any {
	b.t.Helper()
	return b.do(Join{Token: id, SecretHash: []byte("hash"), Node: "n1", Role: state.RoleNode, KeyHash: []byte(key),
		Certificate: []byte(key), Record: &pb.CertificateRecord{Serial: "s" + id + key, Role: state.RoleNode, ExpiresNs: b.now + 1000e9}})
}

func wantProblem(t *testing.T, what string, got any, words string) {
	t.Helper()
	if p, ok := got.(*pb.Problem); !ok || !strings.Contains(p.Error(), words) {
		t.Errorf("%s: %v, want %q", what, got, words)
	}
}

func TestTokens(t *testing.T) {
	b := newBench(t, nil)
	wantProblem(t, "a user", b.do(CreateToken{Caller: alice, Token: &pb.TokenRecord{Id: "x", Node: "n1", Role: state.RoleNode,
		TtlNs: 60e9}}), "only root")
	wantProblem(t, "an unknown node", b.makeToken("x", "n9", state.RoleNode), "not in the configuration")
	wantProblem(t, "an unknown role", b.makeToken("x", "n1", "ctld"), "unknown role")
	wantProblem(t, "a login host that is a node", b.makeToken("x", "n1", state.RoleLogin), "is a node")
	for _, name := range []string{"", "a b", "a\nb", "../n1", "n\u202e1", strings.Repeat("n", 256)} {
		wantProblem(t, fmt.Sprintf("%q", name), b.makeToken("x", name, state.RoleLogin), "not a host name")
	}
	if p, ok := b.makeToken("l", "login1", state.RoleLogin).(*pb.Problem); ok {
		t.Error(p)
	}
	b.makeToken("t", "n1", state.RoleNode)
	b.now += 30e9
	if j, ok := b.join("t", "a").(Joined); !ok || string(j.Certificate) != "a" {
		t.Errorf("%v", j)
	}
	if j, ok := b.do(Join{Token: "t", SecretHash: []byte("hash"), Node: "n1", Role: state.RoleNode, KeyHash: []byte("a"),
		Certificate: []byte("another"), Record: &pb.CertificateRecord{Serial: "s2"}}).(Joined); !ok || string(j.Certificate) != "a" {
		t.Errorf("asked again: %v", j)
	}
	wantProblem(t, "used", b.join("t", "b"), "was used")
	wantProblem(t, "revoking a used one", b.do(RevokeToken{Caller: root, ID: "t"}), "n1 has joined with token t already")
	b.now += 31e9
	wantProblem(t, "expired, also for its own key", b.join("t", "a"), "expired 1s ago")
	if got := len(b.view.Host("n1").Certificates); got != 1 {
		t.Errorf("%d certificates, want 1", got)
	}
	b.now += int64(tokenMemory)
	b.makeToken("u", "n1", state.RoleNode)
	if b.view.Token("t") != nil || b.view.Token("u") == nil {
		t.Error("an old token is remembered, or a new one is not")
	}
	b.do(RevokeToken{Caller: root, ID: "u"})
	wantProblem(t, "revoked", b.join("u", "a"), "was revoked")
}

func TestTokensAreBounded(t *testing.T) {
	b := newBench(t, nil)
	for i := range maxTokens {
		if p, ok := b.makeToken(fmt.Sprint("t", i), "n1", state.RoleNode).(*pb.Problem); ok {
			t.Fatal(p)
		}
	}
	wantProblem(t, "one more", b.makeToken("x", "n1", state.RoleNode), "presently disabled: there are 100")
	b.do(RevokeToken{Caller: root, ID: "t7"})
	b.makeToken("x", "n1", state.RoleNode)
	if n := len(b.view.Tokens()); n != maxTokens || b.view.Token("t7") != nil {
		t.Errorf("%d tokens", n)
	}
}

// TestTokensGoByTheClockThatIsSet: a token keeps its lifetime when the clock is set.
func TestTokensGoByTheClockThatIsSet(t *testing.T) {
	for _, by := range []int64{7200e9, -600e9} {
		b := newBench(t, nil)
		boot := int64(500e9)
		tick := func() {
			tx := state.Begin(b.view, b.now)
			KeepTime(tx, "boot", boot)
			b.view, _ = tx.Freeze()
		}
		tick()
		b.makeToken("t", "n1", state.RoleNode)
		b.now, boot = b.now+by+10e9, boot+10e9
		tick()
		if got := TokenState(b.view.Token("t"), b.now); got != TokenValid {
			t.Errorf("set by %v: %s", time.Duration(by), got)
		}
		b.now, boot = b.now+51e9, boot+51e9
		tick()
		if got := TokenState(b.view.Token("t"), b.now); got != TokenExpired {
			t.Errorf("set by %v, a minute later: %s", time.Duration(by), got)
		}
	}
}

func TestRevokeHost(t *testing.T) {
	b := newBench(t, nil)
	wantProblem(t, "a user", b.do(RevokeHost{Caller: alice, Name: "n1"}), "only root")
	wantProblem(t, "a name that nobody knows", b.do(RevokeHost{Caller: root, Name: "n9"}), "no node n9")
	id := b.submit(&pb.JobSpec{})
	b.start(id, "n1")
	b.makeToken("t", "n1", state.RoleNode)
	b.makeToken("unused", "n1", state.RoleNode)
	b.join("t", "a")
	if !strings.HasPrefix(b.state(id), "RUNNING") {
		t.Fatal(b.state(id))
	}
	out := b.do(RevokeHost{Caller: root, UserName: "root", Name: "n1"})
	if out != (Revoked{Certificates: 1, Tokens: 1}) {
		t.Errorf("%+v", out)
	}
	v := b.view
	if v.Accepts("n1", "sta") || v.Accepts("n1", "never noted") || !v.Accepts("n2", "any") {
		t.Error("what was revoked counts, or what was not does not")
	}
	if n := v.Node("n1"); n.State != pb.NodeState_NODE_DOWN || n.Reason != revokedReason {
		t.Errorf("the node is %v, %q", n.State, n.Reason)
	}
	if strings.HasPrefix(b.state(id), "RUNNING") {
		t.Error("its job is " + b.state(id))
	}
	wantProblem(t, "its token", b.join("unused", "b"), "was revoked")
	wantProblem(t, "the used one", b.join("t", "a"), "was revoked")
	wantProblem(t, "a hello under way", b.do(NodeHello{Hello: hello("n1", "boot1").Hello, Serial: "sta"}), "was revoked")
	wantProblem(t, "a renewal under way",
		b.do(Certified{Name: "n1", By: "sta", Record: &pb.CertificateRecord{Serial: "s9"}}), "was revoked")
	b.makeToken("again", "n1", state.RoleNode)
	b.join("again", "c")
	if !b.view.Accepts("n1", "sagainc") || b.view.Accepts("n1", "sta") {
		t.Error("after another token")
	}
	b.do(NodeHello{Hello: hello("n1", "boot1").Hello, Serial: "sagainc"})
	if n := b.view.Node("n1"); n.State != pb.NodeState_NODE_IDLE || n.Reason != "" {
		t.Errorf("let in again, the node is %v, %q", n.State, n.Reason)
	}
	for i := range 3 * maxCertificates { // renewals
		b.do(Certified{Name: "n1", By: "sagainc", Record: &pb.CertificateRecord{Serial: fmt.Sprint("r", i), ExpiresNs: b.now + 1000e9}})
		if i == 2 && !b.view.Accepts("n1", "r1") {
			t.Error("a renewed one does not count")
		}
	}
	if n := len(b.view.Host("n1").Certificates); n > maxCertificates || b.view.Accepts("n1", "sta") {
		t.Errorf("%d certificates", n)
	}
}

// TestEnrolRows: tokens and hosts survive a restart.
func TestEnrolRows(t *testing.T) {
	b := newBench(t, nil)
	b.makeToken("t", "n1", state.RoleNode)
	tx := state.Begin(b.view, b.now)
	Join{Token: "t", SecretHash: []byte("hash"), Node: "n1", Role: state.RoleNode, KeyHash: []byte("k"), Certificate: []byte("c"),
		Record: &pb.CertificateRecord{Serial: "1", ExpiresNs: 5}}.Handle(tx)
	RevokeHost{Caller: root, Name: "n1"}.Handle(tx)
	rows, err := tx.Rows()
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, r := range rows {
		if bytes.HasPrefix(r.Key, []byte("host/n1")) || bytes.Equal(r.Key, []byte("t")) {
			found++
		}
	}
	if found != 2 || !tx.Durable() {
		t.Errorf("%d rows of the token and the host, durable %v", found, tx.Durable())
	}
}

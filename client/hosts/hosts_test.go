package hosts

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/msg"
)

// controller answers what is asked of certificates and tokens.
type controller struct {
	msg.ControllerAPIClient
	asked *msg.CreateTokenRequest
	well  bool // all hosts
}

func (c *controller) Certificates(context.Context, *msg.CertificatesRequest) (*msg.CertificatesReply, error) {
	seen := time.Date(2026, 11, 22, 10, 0, 0, 0, time.Local).UnixNano()
	return &msg.CertificatesReply{
		Certificates: []*msg.CertificateInfo{
			{Name: "n1", Role: "compute", State: "valid", SeenNs: seen, ExpiresNs: seen, Connected: true, Authority: "aa", Origin: "token",
				Serial: "01"},
			{Name: "n\x1b2", Role: "login", State: "revoked", SeenNs: seen, Origin: "issue", Serial: "02"},
			{Name: "gone", Role: "compute", State: "expired", Serial: "03"},
			{Name: "late", Role: "compute", State: "expired", Connected: true, Serial: "04"},
		},
		Authorities: []*msg.AuthorityInfo{{Id: "aa", Name: "A", Signs: true}, {Id: "bb", Name: "B"}},
	}, nil
}

func (c *controller) Hosts(context.Context, *msg.HostsRequest) (*msg.HostsReply, error) {
	since := time.Date(2026, 11, 22, 10, 0, 0, 0, time.Local).UnixNano()
	all := []*msg.HostInfo{{Name: "head", Role: "ctld", Version: "0.1.0", Configuration: "current", ExpiresNs: since},
		{Name: "n1", Role: "compute", State: msg.NodeState_NODE_IDLE, StateFlags: msg.NodeDrain, Version: "0.1.0", Configuration: "behind",
			ClockOffNs: -90e9, SinceNs: since, Address: "10.0.0.1", Problems: []string{"its clock is wrong", "x\x1b"}},
		{Name: "l1", Role: "login", SinceNs: since}}
	if c.well {
		all[1].Problems = nil
	}
	return &msg.HostsReply{Hosts: all}, nil
}

func (c *controller) CreateToken(_ context.Context, q *msg.CreateTokenRequest) (*msg.CreateTokenReply, error) {
	c.asked = q
	return &msg.CreateTokenReply{Id: "t1", Text: "sluice-join-1.abc"}, nil
}

// TestCertificates: expired ones are left out unless they are in use, and names cannot write to the terminal.
func TestCertificates(t *testing.T) {
	for _, c := range []struct {
		o          options
		want, none []string
	}{
		{options{}, []string{"NAME", "n1 ", " now ", `n\x1b2`, "revoked", "2026-11-22T10:00:00", "late", "authority aa signs",
			"authority bb is accepted until it is dropped"}, []string{"gone", "\x1b"}},
		{options{all: true, bare: true}, []string{"gone", "n1 "}, []string{"NAME", "authority"}},
	} {
		var out strings.Builder
		err := listCertificates(context.Background(), &command.Env{Stdout: &out},
			&client.Client{ControllerAPIClient: &controller{}}, &c.o)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range c.want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("%+v: without %q:\n%s", c.o, w, out.String())
			}
		}
		for _, w := range c.none {
			if strings.Contains(out.String(), w) {
				t.Errorf("%+v: with %q:\n%s", c.o, w, out.String())
			}
		}
	}
}

// TestListHosts: one line a host, and in words what is wrong; --problems is silent when all is well.
func TestListHosts(t *testing.T) {
	const n1 = "n1    compute  IDLE+DRAIN  0.1.0    behind   -90s   -                    10.0.0.1  2026-11-22T10:00:00\n"
	const l1 = "l1    login    -           -        -        -      -                    -         2026-11-22T10:00:00\n"
	const wrong = "\nn1: its clock is wrong\nn1: x\\x1b\n"
	for _, c := range []struct {
		o    options
		well bool
		want string // of what is printed, the end
		fail bool
	}{
		{options{}, false, n1 + l1 + wrong, false},
		{options{wrong: true}, false, wrong, true},
		{options{wrong: true}, true, "", false},
	} {
		var out strings.Builder
		err := listHosts(context.Background(), &command.Env{Stdout: &out},
			&client.Client{ControllerAPIClient: &controller{well: c.well}}, &c.o)
		if (err != nil) != c.fail || !strings.HasSuffix(out.String(), c.want) || c.well && out.Len() > 0 {
			t.Errorf("%+v: %v\n%s", c.o, err, out.String())
		}
		if shows := strings.Contains(out.String(), "head "); shows == c.o.wrong {
			t.Errorf("%+v: the host with which nothing is wrong: %s", c.o, out.String())
		}
	}
}

// TestCreateToken: the token alone is on standard output, for $(…).
func TestCreateToken(t *testing.T) {
	var out, errs strings.Builder
	ctl := &controller{}
	env := &command.Env{Stdout: &out, Stderr: &errs}
	err := createToken(context.Background(), env, &client.Client{ControllerAPIClient: ctl},
		&options{node: "n1", role: "login", ttl: time.Hour})
	if err != nil || out.String() != "sluice-join-1.abc\n" || errs.String() != "" {
		t.Errorf("%v, %q, %q", err, out.String(), errs.String())
	}
	if q := ctl.asked; q.Node != "n1" || q.Role != "login" || q.TtlNs != int64(time.Hour) || q.AnyNode {
		t.Errorf("asked for %+v", q)
	}
	if err := createToken(context.Background(), env, nil, &options{}); err == nil || !strings.Contains(err.Error(), "--node NAME") {
		t.Errorf("without a name: %v", err)
	}
}

// TestWords: what cannot be meant is refused before anybody is asked.
func TestWords(t *testing.T) {
	for _, c := range []struct {
		run  func(*command.Env, []string) int
		args string
		code int
		says string
	}{
		{Token, "", 0, "usage: sluice token"},
		{Token, "list --help", 0, "usage: sluice token list"},
		{Token, "nonsense", 2, `unknown word "nonsense"; see ` + "`sluice token --help`"},
		{Token, "revoke", 2, "a name is missing"},
		{Token, "create --ttl never", 2, "--ttl=never: expected a time such as 30s or 2m; see `sluice token create --help`"},
		{Token, "create --ttl", 2, "option --ttl needs an argument"},
		{Token, "create --nosuch", 2, "unknown option --nosuch"},
		{Certs, "--all=x", 2, "--all=x: expected true or false"},
		{Certs, "n1", 2, `unknown argument "n1"`},
		{Certs, "--help", 0, "usage: sluice certs"},
	} {
		var out strings.Builder
		if got := c.run(&command.Env{Stdout: &out, Stderr: &out}, strings.Fields(c.args)); got != c.code ||
			!strings.Contains(out.String(), c.says) {
			t.Errorf("%q: exit code %d, %q", c.args, got, out.String())
		}
	}
}

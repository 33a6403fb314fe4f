package enrol

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

// run runs a verb with a controller of the test.
func run(c *controller, v *command.Verb, args ...string) (out, errs string, exit int) {
	var stdout, stderr strings.Builder
	env := &command.Env{Name: "sluice " + v.Name, Stdout: &stdout, Stderr: &stderr}
	env.Dial = func(context.Context) (*client.Client, error) { return &client.Client{ControllerAPIClient: c}, nil }
	exit = v.Main(env, args)
	return stdout.String(), stderr.String(), exit
}

// TestCertificates: expired ones are left out unless they are in use, and names cannot write to the terminal.
func TestCertificates(t *testing.T) {
	for _, c := range []struct {
		args       []string
		want, none []string
	}{
		{nil, []string{"NAME", "n1 ", " now ", `n\x1b2`, "revoked", "2026-11-22T10:00:00", "late", "\nauthority aa signs; \"A\"\n",
			"authority bb is accepted until it is dropped"}, []string{"gone", "\x1b"}},
		{[]string{"--all", "-h"}, []string{"gone", "n1 "}, []string{"NAME", "authority"}},
	} {
		out, errs, exit := run(&controller{}, CertsVerb(), c.args...)
		if exit != 0 || errs != "" {
			t.Fatal(exit, errs)
		}
		for _, w := range c.want {
			if !strings.Contains(out, w) {
				t.Errorf("%v: without %q:\n%s", c.args, w, out)
			}
		}
		for _, w := range c.none {
			if strings.Contains(out, w) {
				t.Errorf("%v: with %q:\n%s", c.args, w, out)
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
		only, well bool
		want       string // of what is printed, the end
		exit       int
	}{
		{false, false, n1 + l1 + wrong, 0},
		{true, false, wrong, 1},
		{true, true, "", 0},
	} {
		args := []string{"list"}
		if c.only {
			args = append(args, "--problems")
		}
		out, errs, exit := run(&controller{well: c.well}, NodeVerb(), args...)
		if exit != c.exit || errs != "" || !strings.HasSuffix(out, c.want) || c.well && out != "" {
			t.Errorf("%v: %d, %s\n%s", args, exit, errs, out)
		}
		if shows := strings.Contains(out, "head "); shows == c.only {
			t.Errorf("%v: the host with which nothing is wrong: %s", args, out)
		}
	}
}

// TestCreateToken: the token alone is on standard output, for $(…); a terminal is told what to do with it.
func TestCreateToken(t *testing.T) {
	ctl := &controller{}
	out, errs, exit := run(ctl, TokenVerb(), "create", "--node=n1", "--role", "login", "--ttl", "1h")
	if exit != 0 || out != "sluice-join-1.abc\n" || errs != "" {
		t.Errorf("%d, %q, %q", exit, out, errs)
	}
	if q := ctl.asked; q.Node != "n1" || q.Role != "login" || q.TtlNs != int64(time.Hour) || q.AnyNode {
		t.Errorf("asked for %+v", q)
	}
	if run(ctl, TokenVerb(), "create", "--node=n1"); ctl.asked.Role != "compute" || ctl.asked.TtlNs != int64(15*time.Minute) {
		t.Errorf("by default asked for %+v", ctl.asked)
	}
	reply := &msg.CreateTokenReply{Id: "t1", Text: "T"}
	if got, want := howToJoin(reply, "l1", "login"),
		"Token t1. Run this on l1 (or give --join - and paste it):\n  sluice-noded --login --join T\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	reply.ExpiresNs = time.Date(2026, 11, 22, 10, 0, 0, 0, time.Local).UnixNano()
	if got := howToJoin(reply, "l1", ""); !strings.HasPrefix(got, "Token t1 is valid until 2026-11-22T10:00:00. Run this on l1") {
		t.Errorf("%q", got)
	}
}

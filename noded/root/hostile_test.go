package root

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-hpc/sluice/noded/agent"
	"github.com/sluice-hpc/sluice/noded/hw"
	"github.com/sluice-hpc/sluice/noded/policy"
	"github.com/sluice-hpc/sluice/noded/privsep"
	"github.com/sluice-hpc/sluice/noded/step/folder"
	"github.com/sluice-hpc/sluice/noded/taskenv"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// noSteps is a runner that notes what it is given.
type noSteps struct {
	mu       sync.Mutex
	launched []*pb.Bundle
	other    int
	out      chan *pb.StepReport
}

func newNoSteps() *noSteps { return &noSteps{out: make(chan *pb.StepReport)} }

func (s *noSteps) Recover(context.Context) ([]*pb.StepReport, error) { return nil, nil }
func (s *noSteps) Launch(_ context.Context, b *pb.Bundle, _ []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.launched = append(s.launched, b)
	return nil
}

func (s *noSteps) count() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.other++
	return nil
}
func (s *noSteps) Fail(*pb.Bundle, *pb.ExitRecord) error         { return s.count() }
func (s *noSteps) Control(context.Context, *pb.StepOrder) error  { return s.count() }
func (s *noSteps) Forget(*pb.StepKey) error                      { return s.count() }
func (s *noSteps) Reports() <-chan *pb.StepReport                { return s.out }
func (s *noSteps) Bundle(*pb.StepKey) (*pb.Bundle, error)        { return nil, errors.New("not here") }
func (s *noSteps) Adopt(context.Context, *pb.StepKey, int) error { return s.count() }
func (s *noSteps) Close() error                                  { return nil }
func (s *noSteps) Ready() string                                 { return "" }
func (s *noSteps) Fault(context.Context, bool) string            { return "" }

// newRoot is a root half with that policy, on a machine with two devices.
func newRoot(t testing.TB, steps Steps, p policy.Policy) *Root {
	t.Helper()
	spool := t.TempDir()
	if err := os.Chmod(spool, 0o711); err != nil {
		t.Fatal(err)
	}
	r, err := New(context.Background(), Options{Node: "n1", Cluster: "c1", Spool: spool, Steps: steps, Policy: p, Log: quiet,
		Prober:  &hw.Fake{Inv: hw.Inventory{Topology: hw.Build(1, 2, 1), BootID: "b1"}},
		Daemon:  taskenv.Daemon{Node: "n1", Conf: "/etc/slurm/slurm.conf"},
		Welcome: &nodepb.Welcome{Node: "n1", Key: []byte("key")}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// serve connects to it.
func serve(t testing.TB, r *Root) (conn net.Conn, ended chan error) {
	t.Helper()
	ours, theirs, err := privsep.Pair()
	if err != nil {
		t.Fatal(err)
	}
	conn, err = net.FileConn(theirs)
	theirs.Close()
	if err != nil {
		t.Fatal(err)
	}
	ended, gone := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(gone)
		ended <- r.Serve(context.Background(), ours)
	}()
	t.Cleanup(func() { conn.Close(); <-gone })
	return conn, ended
}

func key() *pb.StepKey { return &pb.StepKey{JobId: 7, Attempt: 1, Epoch: 3, Step: pb.BatchStep} }

// good is a bundle that nothing is wrong with, under a policy that knows its user.
func good() *pb.Bundle {
	return &pb.Bundle{Key: key(), Uid: 54321, Gid: 54321, Cgroup: folder.Group(key()), Argv: []string{"script"}}
}

func but(change func(*pb.Bundle)) *nodepb.Request {
	b := good()
	change(b)
	return &nodepb.Request{What: &nodepb.Request_Launch{Launch: &nodepb.Launch{Bundle: b}}}
}

func prepareRequest(d *pb.GresDevice) *nodepb.Request {
	return &nodepb.Request{What: &nodepb.Request_Prepare{Prepare: &nodepb.Prepare{Key: key(), Devices: []*pb.GresDevice{d}}}}
}

func failRequest(cgroup string, end *pb.StepKey) *nodepb.Request {
	f := &nodepb.Fail{Bundle: &pb.Bundle{Key: key(), Cgroup: cgroup}, Exit: &pb.ExitRecord{Key: end}}
	return &nodepb.Request{What: &nodepb.Request_Fail{Fail: f}}
}

func controlRequest(o *pb.StepOrder) *nodepb.Request {
	return &nodepb.Request{What: &nodepb.Request_Control{Control: o}}
}

func prologRequest(env string) *nodepb.Request {
	return hookRequest(&nodepb.Hook{Kind: nodepb.HookKind_HOOK_PROLOG, Key: key(), Env: []string{env}})
}

func hookRequest(h *nodepb.Hook) *nodepb.Request {
	return &nodepb.Request{What: &nodepb.Request_Hook{Hook: h}}
}

// TestHostileRequests: a noded-link that has been taken over gives every request that it should not. Each is refused, or ends its
// connection, and nothing of it happens.
func TestHostileRequests(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the policy is that of a daemon of root's")
	}
	dir := t.TempDir()
	ran := filepath.Join(dir, "ran")
	evil := filepath.Join(dir, "evil")
	if err := os.WriteFile(evil, []byte("#!/bin/sh\ntouch "+ran+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(evil, 54321, 54321); err != nil {
		t.Fatal(err)
	}
	roots := filepath.Join(dir, "roots")
	if err := os.WriteFile(roots, []byte("#!/bin/sh\ntouch "+ran+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	p := policy.Policy{Strict: true, MinUID: 1000, Own: policy.Own{RebootProgram: "/sbin/reboot"}}
	settings := &pb.NodeSettings{Prolog: evil, Epilog: evil, HealthCheck: evil, UnkillableProgram: evil,
		Gpu: &pb.GpuPolicy{JobMapDir: dir + "/map", StatDir: "/etc"}}
	ofAnother := &pb.LaunchSpec{Key: &pb.StepKey{JobId: 8}}
	prolog, epilog := nodepb.HookKind_HOOK_PROLOG, nodepb.HookKind_HOOK_EPILOG
	for what, c := range map[string]struct {
		request  *nodepb.Request
		settings *pb.NodeSettings
		raw      []byte
		want     string // in the answer; ends: in why the connection ended; done: it is carried out, without harm
	}{
		"root's job":           {request: but(func(b *pb.Bundle) { b.Uid, b.Gid = 0, 0 }), want: "jobs of root"},
		"a system user's job":  {request: but(func(b *pb.Bundle) { b.Uid = 33 }), want: "MinimumUID"},
		"root's group":         {request: but(func(b *pb.Bundle) { b.Groups = []uint32{54321, 0} }), want: "not in group 0"},
		"root's primary group": {request: but(func(b *pb.Bundle) { b.Gid = 0 }), want: "not in group 0"},
		"a user's TaskProlog":  {request: but(func(b *pb.Bundle) { b.TaskProlog = []string{evil} }), want: "belongs to uid 54321"},
		"a user's TaskEpilog":  {request: but(func(b *pb.Bundle) { b.TaskEpilog = evil }), want: "belongs to uid 54321"},
		"a device that is not": {request: but(func(b *pb.Bundle) { b.Devices = []*pb.GresDevice{{Name: "gpu", Id: "GPU-x"}} }),
			want: "does not have it"},
		"preparing such a device": {request: prepareRequest(&pb.GresDevice{Id: "GPU-x"}), want: "does not have it"},
		"cutting such a device":   {request: prepareRequest(&pb.GresDevice{Parent: "GPU-x", Type: "1g.5gb"}), want: "cannot cut"},
		"rules for devices": {request: but(func(b *pb.Bundle) { b.Limits = &pb.Limits{Devices: []*pb.DeviceRule{{Allow: true}}} }),
			want: "ends: it has device rules"},
		"another step's cgroup": {request: but(func(b *pb.Bundle) { b.Cgroup = "job_8.1" }), want: "ends: its cgroup"},
		"a cgroup elsewhere":    {request: but(func(b *pb.Bundle) { b.Cgroup = "../../system.slice" }), want: "ends: its cgroup"},
		"no cgroup":             {request: but(func(b *pb.Bundle) { b.Cgroup = "" }), want: "ends: its cgroup"},
		"no step":               {request: but(func(b *pb.Bundle) { b.Key = nil }), want: "ends: names no step"},
		"no bundle": {request: &nodepb.Request{What: &nodepb.Request_Launch{Launch: &nodepb.Launch{}}},
			want: "ends: no bundle"},
		"failing in such a cgroup": {request: failRequest("../x", key()), want: "ends: its cgroup"},
		"the end of another step":  {request: failRequest("", &pb.StepKey{JobId: 8}), want: "ends: two steps"},
		"control of no step":       {request: controlRequest(&pb.StepOrder{}), want: "ends: names no step"},
		"control with a launch": {request: controlRequest(&pb.StepOrder{Key: key(), Launch: &pb.LaunchSpec{}}),
			want: "ends: has a launch"},
		"forget no step": {request: &nodepb.Request{What: &nodepb.Request_Forget{Forget: &nodepb.Forget{}}},
			want: "ends: names no step"},
		"a user's prolog": {settings: settings, request: hookRequest(&nodepb.Hook{Kind: prolog, Key: key()}),
			want: "belongs to uid 54321"},
		"a user's epilog": {settings: settings, request: hookRequest(&nodepb.Hook{Kind: epilog, Key: key()}),
			want: "belongs to uid 54321"},
		"a user's health check": {settings: settings, request: hookRequest(&nodepb.Hook{Kind: nodepb.HookKind_HOOK_HEALTH}), want: "done"},
		"a user's unkillable": {settings: settings, request: hookRequest(&nodepb.Hook{Kind: nodepb.HookKind_HOOK_UNKILLABLE, Key: key()}),
			want: "done"},
		"a relative prolog": {settings: &pb.NodeSettings{Prolog: "evil"}, request: hookRequest(&nodepb.Hook{Kind: prolog, Key: key()}),
			want: "absolute path"},
		"a user's prologs": {settings: &pb.NodeSettings{Prolog: dir + "/e*"}, request: hookRequest(&nodepb.Hook{Kind: prolog, Key: key()}),
			want: "belongs to uid 54321"},
		"an evil environment": {settings: &pb.NodeSettings{Prolog: roots},
			request: prologRequest("LD_PRELOAD=" + evil), want: "LD_PRELOAD"},
		"an evil shell": {settings: &pb.NodeSettings{Prolog: roots}, request: prologRequest("BASH_ENV=" + evil), want: "BASH_ENV"},
		"the job of another step": {request: hookRequest(&nodepb.Hook{Kind: prolog, Key: key(), Remember: ofAnother}),
			want: "ends: two steps"},
		"a prolog of no step": {request: hookRequest(&nodepb.Hook{Kind: prolog}), want: "ends: names no step"},
		"a hook that is none": {request: hookRequest(&nodepb.Hook{Kind: 77, Key: key()}), want: "ends: no hook"},
		"reboot by a shell": {request: hookRequest(&nodepb.Hook{Kind: nodepb.HookKind_HOOK_REBOOT, Program: "/bin/sh -c " + evil}),
			want: "with arguments"},
		"reboot by a user": {request: hookRequest(&nodepb.Hook{Kind: nodepb.HookKind_HOOK_REBOOT, Program: evil}),
			want: "belongs to uid 54321"},
		"reboot by nothing": {request: hookRequest(&nodepb.Hook{Kind: nodepb.HookKind_HOOK_REBOOT}), want: "ends: no program"},
		"folders of GPU files": {settings: settings, request: &nodepb.Request{What: &nodepb.Request_Look{Look: &nodepb.Look{}}},
			want: "done"},
		"an empty request": {request: &nodepb.Request{}, want: "ends: is empty"},
		"a request without a number": {request: &nodepb.Request{Id: 1 << 63, What: &nodepb.Request_Look{Look: &nodepb.Look{}}},
			want: "ends: its number"},
		"no message":                 {raw: []byte{3, 0, 0, 0, 0xff, 0xff, 0xff}, want: "ends: cannot decode"},
		"a message that is too long": {raw: []byte{0xff, 0xff, 0xff, 0x7f}, want: "ends: too long"},
		"a message cut short":        {raw: []byte{200, 0, 0, 0, 1}, want: "ends: truncated"},
	} {
		t.Run(what, func(t *testing.T) {
			steps := newNoSteps()
			r := newRoot(t, steps, p)
			conn, ended := serve(t, r)
			defer conn.Close()
			if c.request != nil {
				if c.request.Id == 1<<63 {
					c.request.Id = 0
				} else {
					c.request.Id = 9
				}
				if c.settings != nil {
					c.raw, _ = privsep.Append(nil, &nodepb.Request{What: &nodepb.Request_Settings{Settings: c.settings}})
				}
				c.raw, _ = privsep.Append(c.raw, c.request)
			}
			if _, err := conn.Write(c.raw); err != nil {
				t.Fatal(err)
			}
			why, ends := strings.CutPrefix(c.want, "ends: ")
			if ends {
				if strings.Contains(what, "cut short") {
					_ = conn.(*net.UnixConn).CloseWrite()
				}
				if err := <-ended; err == nil || !strings.Contains(err.Error(), why) {
					t.Errorf("it ended with %v, want %q", err, why)
				}
			} else if a := hear(t, bufio.NewReader(conn), isAnswer).GetAnswer(); (c.want == "done") != (a.Error == "" && a.Failed == "") ||
				c.want != "done" && !strings.Contains(a.Error+a.Failed, c.want) {
				t.Errorf("answered %v, want %q", a, c.want)
			}
			conn.Close()
			steps.mu.Lock()
			defer steps.mu.Unlock()
			if len(steps.launched) > 0 || ends && steps.other > 0 {
				t.Errorf("it was carried out: %v", steps.launched)
			}
			for _, path := range []string{ran, dir + "/map", "/etc/0"} {
				if _, err := os.Stat(path); err == nil {
					t.Errorf("there is %s", path)
				}
			}
		})
	}
}

func isAnswer(w *nodepb.Word) bool { return w.GetAnswer() != nil }

// hear reads what is said until it is what is waited for.
func hear(t *testing.T, in *bufio.Reader, what func(*nodepb.Word) bool) *nodepb.Word {
	t.Helper()
	for {
		b, err := privsep.Read(in, privsep.MaxWord)
		if err != nil {
			t.Fatal(err)
		}
		w := &nodepb.Word{}
		if err := proto.Unmarshal(b, w); err != nil {
			t.Fatal(err)
		}
		if what(w) {
			return w
		}
	}
}

// TestGoodRequest: what the hostile requests are variations of is carried out, with the devices of others closed whatever it says.
func TestGoodRequest(t *testing.T) {
	steps := newNoSteps()
	r := newRoot(t, steps, policy.Policy{Strict: true, MinUID: 1000, Own: policy.Own{ConstrainDevices: true}})
	conn, _ := serve(t, r)
	in := bufio.NewReader(conn)
	gres := []*pb.GresConf{{Name: "fpga", Files: []string{"/dev/null"}, Count: 1}, {Name: "fpga", Files: []string{"/dev/zero"}, Count: 1}}
	give(t, conn, &nodepb.Request{What: &nodepb.Request_Settings{Settings: &pb.NodeSettings{Gres: gres}}})
	hear(t, in, func(w *nodepb.Word) bool { return len(w.GetDevices().GetReport().GetDevices()) == 2 })
	o := but(func(b *pb.Bundle) { b.Devices = []*pb.GresDevice{{Name: "fpga", Index: 1}} })
	o.Id = 4
	give(t, conn, o)
	if a := hear(t, in, isAnswer).GetAnswer(); a.Error != "" || a.Id != 4 {
		t.Fatalf("%v", a)
	}
	steps.mu.Lock()
	defer steps.mu.Unlock()
	if rules := steps.launched[0].GetLimits().GetDevices(); len(rules) != 1 || rules[0].Allow || rules[0].Minor != 3 {
		t.Errorf("the rules are %v; the other device of this node, 1:3, is to be closed", rules)
	}
}

func give(t *testing.T, conn net.Conn, o *nodepb.Request) {
	t.Helper()
	raw, err := privsep.Append(nil, o)
	if err == nil {
		_, err = conn.Write(raw)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// FuzzOrder: whatever the bytes are, the root half goes on, and no job of root's is launched.
func FuzzOrder(f *testing.F) {
	for _, o := range []*nodepb.Request{but(func(*pb.Bundle) {}), but(func(b *pb.Bundle) { b.Uid = 0 }), {},
		hookRequest(&nodepb.Hook{Kind: 1, Key: key()}),
		{What: &nodepb.Request_Settings{Settings: &pb.NodeSettings{Prolog: "/bin/sh", ConstrainDevices: true}}},
		{What: &nodepb.Request_Cancel{Cancel: &nodepb.Cancel{Id: 1}}}, {What: &nodepb.Request_Look{}},
		{What: &nodepb.Request_Stop{Stop: &nodepb.Stop{}}},
		{What: &nodepb.Request_Prepare{Prepare: &nodepb.Prepare{Key: key(), Devices: []*pb.GresDevice{{Id: "x"}}}}}} {
		o.Id = 1
		b, err := proto.Marshal(o)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	steps := newNoSteps()
	r := newRoot(f, steps, policy.Policy{Strict: true, MinUID: 1000, Folders: []string{"/nonexistent"}})
	f.Fuzz(func(t *testing.T, b []byte) {
		o, _, err := decode(b)
		if err != nil {
			return
		}
		s := &session{r: r, out: privsep.NewOutbox(), dirty: map[agent.Key]bool{}, calls: map[uint64]context.CancelCauseFunc{}}
		row, err := rowOf(o)
		if err != nil {
			t.Fatalf("it was decoded, and is not well-formed: %v", err)
		}
		if row.now != nil {
			row.now(s, o)
		} else {
			_, _ = row.do(r, t.Context(), o)
		}
		steps.mu.Lock()
		defer steps.mu.Unlock()
		for _, b := range steps.launched {
			if !b.HoldOnly && b.Uid < 1000 || b.Cgroup != folder.Group(b.Key) {
				t.Fatalf("launched: %v", b)
			}
		}
		steps.launched = nil
	})
}

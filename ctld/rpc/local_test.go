package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/containerd/ttrpc"
	"github.com/sluice-hpc/sluice/ctld/journal"
	"github.com/sluice-hpc/sluice/ctld/live"
	"github.com/sluice-hpc/sluice/ctld/loop"
	"github.com/sluice-hpc/sluice/ctld/planner"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/internal/passwd"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/record"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

func stateConfig() *state.Config {
	cfg := &state.Config{Settings: &state.Settings{Cluster: "test", PriorityBasic: true,
		MaxNodeCount: 10, MaxJobCount: 100000, MaxJobsPerUser: 100000,
		MaxArraySize: 1000, JobRequeue: true}, Default: "debug",
		PartitionNodes: map[string][]string{"debug": {"n1", "n2"}}}
	for _, n := range []string{"n1", "n2"} {
		cfg.Nodes = append(cfg.Nodes, &pb.NodeRecord{Name: n, Cpus: 4, Sockets: 1, Cores: 4, Threads: 1, RealMemoryMib: 4000})
	}
	cfg.Partitions = []*pb.PartitionRecord{{Name: "debug", State: "UP", MaxTimeS: pb.Unlimited, DefaultTimeS: 60, MaxNodes: pb.Unlimited}}
	return cfg
}

// server is a writer and its services on a real socket.
type server struct {
	t      *testing.T
	socket string
	loop   *loop.Loop
	local  *Local
	stops  chan struct{}
	live   *live.Steps

	private atomic.Pointer[Privacy]
}

// hide sets PrivateData.
func (s *server) hide(p Privacy) { s.private.Store(&p) }

func serve(t *testing.T, prepare ...func(*Local)) *server {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it connects as other users")
	}
	dir, err := os.MkdirTemp("", "rpc") // and not t.TempDir: other users must get through
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	store := journal.NewMemory()
	log := slog.New(slog.DiscardHandler)
	watch := NewWatch()
	l := loop.New(store, state.New(stateConfig(), "c", 1), time.Now, log, watch.Changed)
	advisor := planner.NewAdvisor(record.Params{})
	s := &server{t: t, socket: filepath.Join(dir, "s"), loop: l, stops: make(chan struct{}, 10)}
	s.hide(Privacy{})
	service := &Service{Writer: l, Watch: watch, Log: log, Host: "h.lab.org", Name: func() string { return "head" }, Started: time.Now(),
		Users: NewUsers(), Forecast: advisor.Forecast,
		Why: advisor.Why, Terms: advisor.Priorities, Reload: func(dryRun, _ bool) (reactor.Command,
			[]string, error) {
			return reactor.Reconfigure{Config: stateConfig(), DryRun: dryRun}, []string{"KillWait: 1 -> 2"}, nil
		}, Stop: func() { s.stops <- struct{}{} },
		Script: func(j *pb.JobRecord) ([]byte, []string, error) { return state.ReadTexts(store.Get, j) },
		NewNodes: func(names string, _ []*pb.KeyValue) ([]*pb.NodeRecord, error) {
			return []*pb.NodeRecord{{Name: names, Cpus: 1}}, nil
		},
		MakeBackup: func(string) (string, int64, error) { return "backup", 1, nil },
		Debug:      func(*pb.SetDebugRequest, []string) *pb.Problem { return nil },
		Shown:      func() *pb.ConfigReply { return &pb.ConfigReply{} },
		Figures:    func(bool) map[string]float64 { return nil }, Acct: shownAccounting{},
		Privacy: func() Privacy { return *s.private.Load() },
		Live:    live.NewSteps()}
	s.live = service.Live
	service.Enrol = enrolment(t)
	service.Users.find = func(who string) (passwd.Account, bool, error) {
		if uid := uint32(alice); who == fmt.Sprint(uid) {
			return passwd.Account{Name: who, UID: uid, GID: uid}, true, nil
		}
		return passwd.Find(who)
	}
	s.local = NewLocal(service, func(uid uint32) bool { return uid == 0 }, log)
	// Clients here lie idle, and calls wait for others, for as long as a slow machine takes.
	for _, d := range []*time.Duration{&s.local.patience, &s.local.crowdedFor, &s.local.drainsFor, &s.local.readWait} {
		*d = time.Hour
	}
	for _, f := range prepare {
		f(s.local)
	}
	listener, err := Listen(s.socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = l.Run(ctx) })
	wg.Go(func() {
		if err := s.local.Serve(ctx, listener); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return s
}

// as is a client with a connection of its own.
func (s *server) as(uid, gid uint32, groups ...uint32) pb.ControllerAPIClient {
	s.t.Helper()
	client := ttrpc.NewClient(s.connect(uid, append([]uint32{gid}, groups...)...))
	s.t.Cleanup(func() { _ = client.Close() })
	return pb.NewControllerAPIClient(client)
}

// connect connects as uid, which the kernel reports to the other end. Only one thread changes its identity, and it ends afterwards, so
// the test process remains root. The first of groups is the user's primary group.
func (s *server) connect(uid uint32, groups ...uint32) net.Conn {
	s.t.Helper()
	type result struct {
		conn net.Conn
		err  error
	}
	if len(groups) == 0 {
		groups = []uint32{uid}
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // and never unlock it
		conn, err := connectAs(s.socket, uid, groups[0], groups[1:])
		done <- result{conn, err}
	}()
	r := <-done
	if r.err != nil {
		s.t.Fatal(r.err)
	}
	return r.conn
}

func connectAs(path string, uid, gid uint32, groups []uint32) (net.Conn, error) {
	var first *uint32
	if len(groups) > 0 {
		first = &groups[0]
	}
	for _, call := range [][4]uintptr{
		{unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(first))},
		{unix.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid)},
		{unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)},
	} {
		if _, _, errno := unix.RawSyscall(call[0], call[1], call[2], call[3]); errno != 0 {
			return nil, errno
		}
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return nil, fmt.Errorf("cannot connect: %w", err)
	}
	return net.FileConn(f)
}

const (
	alice  = 65533
	nobody = 65534
)

func request(script string) *pb.SubmitRequest {
	return &pb.SubmitRequest{Script: []byte(script), Env: []string{"SECRET=x"},
		Spec: &pb.JobSpec{Name: "job", NumTasks: 1, WorkDir: "/", Hold: true}}
}

func submit(t *testing.T, c pb.ControllerAPIClient, r *pb.SubmitRequest) uint32 {
	t.Helper()
	reply, err := c.Submit(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	return reply.JobId
}

// problemOf is the Problem in an error, with its code.
func problemOf(err error) (*pb.Problem, codes.Code) {
	st, _ := status.FromError(err)
	for _, d := range st.Details() {
		if p, ok := d.(*pb.Problem); ok {
			return p, st.Code()
		}
	}
	return nil, st.Code()
}

var ctx = context.Background()

func outcome(list []*pb.JobOutcome, err error) error {
	for _, o := range list {
		if o.Problem != nil {
			return problem(o.Problem)
		}
	}
	return err
}

// drain reads a stream to its end.
func drain[S any](stream S, err error) func(recv func(S) error) error {
	return func(recv func(S) error) error {
		for err == nil {
			err = recv(stream)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	}
}

func submitLarge(c pb.ControllerAPIClient, r *pb.SubmitRequest, piece int) (*pb.SubmitReply, error) {
	data, err := proto.Marshal(r)
	if err != nil {
		return nil, err
	}
	stream, err := c.SubmitLarge(ctx)
	if err != nil {
		return nil, err
	}
	for chunk := range slices.Chunk(data, piece) {
		if err := stream.Send(&pb.SubmitChunk{Data: chunk}); err != nil {
			break // the answer says why
		}
	}
	return stream.CloseAndRecv()
}

// Every method, called over the socket by the job's owner, by somebody else and by root, does what its row in the table says.
func TestWhoMayCall(t *testing.T) {
	s := serve(t)
	root, owner, other := s.as(0, 0), s.as(alice, alice), s.as(nobody, nobody)
	ended := submit(t, root, request("#!/bin/sh\n"))
	if err := calls["CancelJobs"](root, ended); err != nil {
		t.Fatal(err)
	}
	methods := pb.File_sluice_v1_services_proto.Services().ByName("ControllerAPI").Methods()
	for i := range methods.Len() {
		name := string(methods.Get(i).Name())
		call := calls[name]
		if call == nil {
			t.Errorf("%s is not tested", name)
			continue
		}
		for _, by := range []struct {
			name   string
			client pb.ControllerAPIClient
			may    bool
		}{
			{"other", other, Table["sluice.v1.ControllerAPI/"+name].Who == Anyone},
			{"owner", owner, Table["sluice.v1.ControllerAPI/"+name].Who != Operator},
			{"root", root, true},
		} {
			err := call(by.client, submit(t, owner, request("#!/bin/sh\n")))
			p, code := problemOf(err)
			want := pb.CodeAccessDenied
			switch row := Table["sluice.v1.ControllerAPI/"+name]; {
			case row.Who == Operator, name == "ControlJobs", name == "UpdateJob", name == "BatchScript":
				want = pb.CodeUserID // as Slurm has it
			}
			switch {
			case by.may && err != nil:
				t.Errorf("%s by %s: %v", name, by.name, err)
			case !by.may && (p == nil || pb.Code(p.Code) != want || code != codes.PermissionDenied):
				t.Errorf("%s by %s: %v", name, by.name, err)
			}
		}
	}
	<-s.stops // Shutdown by root
	if len(s.stops) > 0 {
		t.Error("somebody else could shut the controller down")
	}
	if _, err := other.Stats(ctx, &pb.StatsRequest{Reset_: true}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("counters reset by a user: %v", err)
	}
}

// A job belongs to the peer, whatever its specification says; only root may submit for others.
func TestIdentity(t *testing.T) {
	s := serve(t)
	user, root := s.as(nobody, nobody, nobody, 7), s.as(0, 0)
	forged := request("#!/bin/sh\n")
	forged.Spec.Gid, forged.Spec.Groups, forged.Spec.User, forged.Spec.Group, forged.Spec.AllocNode = 5, []uint32{0, 4}, "root", "root",
		"login1"
	id := submit(t, user, forged)
	j := s.loop.View().Jobs.Get(id)
	if j.Spec.AllocNode != "h" {
		t.Errorf("the job says that it comes from %s", j.Spec.AllocNode)
	}
	// The controller's name is that of slurm.conf, not that of its machine.
	if r, err := user.Ping(ctx, &pb.PingRequest{}); err != nil || r.Host != "head" {
		t.Errorf("the controller says that it is %v, %v", r, err)
	}
	if j.Spec.Uid != nobody || j.Spec.Gid != nobody || !slices.Equal(j.Spec.Groups, []uint32{7, nobody}) ||
		j.Spec.User != NewUsers().Name(nobody) {
		t.Errorf("the job is of uid %d gid %d groups %v, user %s", j.Spec.Uid, j.Spec.Gid, j.Spec.Groups, j.Spec.User)
	}
	for what, change := range map[string]func(*pb.JobSpec){
		"another's uid": func(s *pb.JobSpec) { s.Uid = alice }, "negative nice": func(s *pb.JobSpec) { s.Nice = -1 },
		"a priority": func(s *pb.JobSpec) { s.Priority = 5 },
	} {
		r := request("#!/bin/sh\n")
		change(r.Spec)
		if _, err := user.Submit(ctx, r); err == nil {
			t.Errorf("a user may submit with %s", what)
		}
	}
	forOther := request("#!/bin/sh\n")
	forOther.Spec.Uid, forOther.Spec.Groups = nobody, []uint32{0}
	id = submit(t, root, forOther)
	j = s.loop.View().Jobs.Get(id)
	if j.Spec.Uid != nobody || j.Spec.Gid == 0 || slices.Contains(j.Spec.Groups, 0) {
		t.Errorf("root's job for another is of uid %d gid %d groups %v", j.Spec.Uid, j.Spec.Gid, j.Spec.Groups)
	}
}

// Nothing that users are shown has a script or an environment in it.
func TestNoSecretsInLists(t *testing.T) {
	s := serve(t)
	id := submit(t, s.as(alice, alice), request("#!/bin/sh\n# TOP-SECRET\n"))
	other := s.as(nobody, nobody)
	stream, err := other.Jobs(ctx, &pb.JobsRequest{Ids: []string{fmt.Sprint(id)}})
	if err != nil {
		t.Fatal(err)
	}
	reply, err := stream.Recv()
	if err != nil || len(reply.Jobs) != 1 {
		t.Fatal(reply, err)
	}
	if text := reply.String(); strings.Contains(text, "SECRET") {
		t.Errorf("shown to another user: %s", text)
	}
	explained, err := other.Explain(ctx, &pb.ExplainRequest{Id: fmt.Sprint(id)})
	if err != nil || strings.Contains(explained.Text, "SECRET") {
		t.Errorf("explained to another user: %v %v", explained, err)
	}
}

func TestSubmitLarge(t *testing.T) {
	s := serve(t)
	c := s.as(alice, alice)
	r := request("#!/bin/sh\n" + strings.Repeat("# a line\n", 400000))
	reply, err := submitLarge(c, r, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := c.BatchScript(ctx, &pb.BatchScriptRequest{JobId: reply.JobId})
	if err != nil {
		t.Fatal(err)
	}
	var script []byte
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		script = append(script, m.Data...)
	}
	if !bytes.Equal(script, r.Script) {
		t.Errorf("%d bytes were submitted, %d came back", len(r.Script), len(script))
	}
	for _, n := range []int{maxScript + 1, maxScript + 3*maxEnv} {
		_, err := submitLarge(c, request("#!"+strings.Repeat("x", n)), 1<<20)
		if p, _ := problemOf(err); p == nil || pb.Code(p.Code) != pb.CodeTooLarge {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	st, err := c.SubmitLarge(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_ = st.Send(&pb.SubmitChunk{Data: []byte("no message")})
	if _, err := st.CloseAndRecv(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("what is no submission: %v", err)
	}
	if n := s.loop.View().Jobs.Len(); n != 1 {
		t.Errorf("%d jobs", n)
	}
}

// The same request is the same job, however often it comes.
func TestSameRequest(t *testing.T) {
	s := serve(t)
	c := s.as(alice, alice)
	r := request("#!/bin/sh\n")
	r.RequestId = "0123456789abcdef"
	if a, b := submit(t, c, r), submit(t, c, r); a != b {
		t.Errorf("jobs %d and %d", a, b)
	}
	if a, b := submit(t, c, r), submit(t, s.as(nobody, nobody), r); a == b {
		t.Error("another user's request with the same id was answered with the job")
	}
}

// One user cannot take all connections.
func TestConnections(t *testing.T) {
	s := serve(t)
	c := s.as(nobody, nobody)
	if err := calls["Ping"](c, 0); err != nil { // it has been counted
		t.Fatal(err)
	}
	s.local.hold(nobody, maxUserConns)
	crowded := s.as(nobody, nobody)
	if p, _ := problemOf(calls["Ping"](crowded, 0)); p == nil || pb.Code(p.Code) != pb.CodeRateLimited {
		t.Errorf("a connection too many: %v", p)
	}
	for who, c := range map[string]pb.ControllerAPIClient{"the connection that was there": c, "another user": s.as(alice, alice),
		"root": s.as(0, 0)} {
		if err := calls["Ping"](c, 0); err != nil {
			t.Errorf("%s: %v", who, err)
		}
	}
}

// WaitJob answers when the job has ended, and not before.
func TestWaitJob(t *testing.T) {
	s := serve(t)
	c := s.as(alice, alice)
	id := submit(t, c, request("#!/bin/sh\n"))
	done := make(chan *pb.WaitJobReply, 1)
	go func() {
		r, err := c.WaitJob(ctx, &pb.WaitJobRequest{JobId: id})
		if err != nil {
			t.Error(err)
		}
		done <- r
	}()
	if err := calls["ControlJobs"](c, id); err != nil { // a change that is no end
		t.Fatal(err)
	}
	if len(done) > 0 {
		t.Fatal("answered while the job waits")
	}
	if err := calls["CancelJobs"](c, id); err != nil {
		t.Fatal(err)
	}
	if r := <-done; r.GetJob().GetState() != pb.JobState_JOB_CANCELLED {
		t.Errorf("the job is %v", r.GetJob().GetState())
	}
	_, err := c.WaitJob(ctx, &pb.WaitJobRequest{JobId: 999})
	if p, code := problemOf(err); p == nil || pb.Code(p.Code) != pb.CodeInvalidJobID || code != codes.NotFound {
		t.Errorf("a job that does not exist: %v", err)
	}
	watch := s.local.service.Watch
	watch.mu.Lock()
	defer watch.mu.Unlock()
	if n := len(watch.jobs); n != 0 {
		t.Errorf("%d jobs are watched when nobody waits", n)
	}
}

// A caller that waits for an array examines it at the start and when all of it has ended, not at the end of each task, in any order. Waits
// for other records of the array work as for jobs.
func TestWaitForAnArrayLooksOnce(t *testing.T) {
	s := serve(t)
	c := s.as(alice, alice)
	r := request("#!/bin/sh\n")
	r.Spec.Array = "0-29"
	id := submit(t, c, r)
	cancel := func(task int) {
		t.Helper()
		if _, err := c.CancelJobs(ctx, &pb.CancelJobsRequest{Ids: []string{fmt.Sprintf("%d_%d", id, task)}}); err != nil {
			t.Fatal(err)
		}
	}
	const waiters = 5
	watch := s.local.service.Watch
	var looks atomic.Int32
	ended := make(chan error, waiters)
	for range waiters {
		go func() {
			ended <- watch.until(ctx, id, s.loop.View, func(v *state.View) bool {
				looks.Add(1)
				return !activeIn(v, v.Jobs.Get(id))
			})
		}()
	}
	for looks.Load() < waiters {
		time.Sleep(time.Millisecond)
	}
	for task := range 29 {
		cancel(29 - task)
	}
	if len(ended) > 0 {
		t.Error("the wait for an array ends before the array")
	}
	cancel(0)
	for range waiters {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if n := looks.Load(); n > 2*waiters {
		t.Errorf("%d who wait for an array of 30 tasks have looked at it %d times", waiters, n)
	}
}

// A list of many jobs comes in pages, all of one moment, each job once and in order.
func TestPages(t *testing.T) {
	s := serve(t)
	const n = 2*pageRecords + 100
	for range n {
		if _, err := s.loop.Do(ctx, reactor.Submit{Job: &pb.JobRecord{Spec: &pb.JobSpec{Name: "j", Uid: alice, Hold: true},
			Partition: "debug"}}); err != nil {
			t.Fatal(err)
		}
	}
	stream, err := s.as(nobody, nobody).Jobs(ctx, &pb.JobsRequest{Fields: []uint32{1}})
	if err != nil {
		t.Fatal(err)
	}
	var next uint32 = 1
	var seq uint64
	pages := 0
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if pages++; pages == 1 {
			seq = r.Seq
		}
		if len(r.Jobs) > pageRecords || r.Seq != seq {
			t.Errorf("page %d has %d jobs, of moment %d", pages, len(r.Jobs), r.Seq)
		}
		for _, j := range r.Jobs {
			if j.Id != next {
				t.Fatalf("job %d comes where %d should", j.Id, next)
			}
			next++
		}
		if pages == 1 {
			if err := calls["CancelJobs"](s.as(alice, alice), n); err != nil { // must not be seen
				t.Fatal(err)
			}
		}
	}
	if next != n+1 || pages != 3 {
		t.Errorf("%d jobs in %d pages", next-1, pages)
	}
}

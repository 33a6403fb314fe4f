package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/ctld/journal"
	"github.com/sluice-hpc/sluice/ctld/live"
	"github.com/sluice-hpc/sluice/ctld/loop"
	"github.com/sluice-hpc/sluice/ctld/planner"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/record"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The cluster of these tests: jobs in one array of their own each, and nodes.
const (
	crowdJobs  = 3000
	crowdNodes = 1100
)

// crowd is a service over a state of many jobs and nodes, without a socket.
var crowd = sync.OnceValue(func() *Service {
	cfg := stateConfig()
	cfg.Settings.PriorityBasic = false
	for i := range crowdNodes {
		name := fmt.Sprintf("c%d", i)
		cfg.Nodes = append(cfg.Nodes, &pb.NodeRecord{Name: name, Cpus: 4, Sockets: 1, Cores: 4, Threads: 1, RealMemoryMib: 4000})
		cfg.PartitionNodes["debug"] = append(cfg.PartitionNodes["debug"], name)
	}
	l := loop.New(journal.NewMemory(), state.New(cfg, "c", 1), time.Now, slog.New(slog.DiscardHandler))
	var cmds []reactor.Command
	for range crowdJobs {
		spec := &pb.JobSpec{Name: "j", Uid: alice, User: "alice", NumTasks: 1, MinNodes: 1, Array: "0-8:2"}
		cmds = append(cmds, reactor.Submit{Job: &pb.JobRecord{Spec: spec, Partition: "debug", Priority: 1}})
	}
	if _, err := l.Turn(cmds...); err != nil {
		panic(err)
	}
	advisor := planner.NewAdvisor(record.Params{})
	return &Service{Writer: l, Watch: NewWatch(), Host: "h", Name: func() string { return "h" }, Users: NewUsers(),
		Forecast: advisor.Forecast,
		Why:      advisor.Why, Terms: advisor.Priorities, Live: live.NewSteps(), Privacy: func() Privacy { return Privacy{} }}
})

// leaver is the context of a caller who leaves after the call has looked at it a number of times.
type leaver struct {
	context.Context
	stays int // how often it is still there; < 0: always
	asked int
}

func (l *leaver) Err() error {
	if l.asked++; l.stays >= 0 && l.asked > l.stays {
		return context.Canceled
	}
	return nil
}

func leaving(uid uint32, stays int) *leaver {
	return &leaver{Context: context.WithValue(context.Background(), peerKey{}, &Peer{UID: uid}), stays: stays}
}

// sent is the other end of a listing.
type sent[R any] struct{ got []*R }

func (s *sent[R]) Send(m *R) error {
	s.got = append(s.got, m)
	return nil
}
func (s *sent[R]) SendMsg(any) error { return nil }
func (s *sent[R]) RecvMsg(any) error { return nil }

// everyWord names all arrays of the crowd by a stepped list.
func everyWord() (words []string) {
	for i := range maxListed {
		words = append(words, fmt.Sprintf("%d_[0-8388606:2]", i+1))
	}
	return words
}

// walks are the calls that walk over records, each with the longest request that it takes.
var walks = map[string]func(ctx context.Context, s *Service) error{
	"Jobs": func(ctx context.Context, s *Service) error {
		return s.Jobs(ctx, &pb.JobsRequest{Ids: everyWord()}, &sent[pb.JobsReply]{})
	},
	"all Jobs": func(ctx context.Context, s *Service) error {
		return s.Jobs(ctx, &pb.JobsRequest{}, &sent[pb.JobsReply]{})
	},
	"Nodes": func(ctx context.Context, s *Service) error {
		return s.Nodes(ctx, &pb.NodesRequest{}, &sent[pb.NodesReply]{})
	},
	"Gpus": func(ctx context.Context, s *Service) error {
		return s.Gpus(ctx, &pb.GpusRequest{}, &sent[pb.GpusReply]{})
	},
	"Explain": func(ctx context.Context, s *Service) error {
		_, err := s.Explain(ctx, &pb.ExplainRequest{Id: "1_[0-8388606:2]"})
		return err
	},
	"Priorities": func(ctx context.Context, s *Service) error {
		_, err := s.Priorities(ctx, &pb.PrioritiesRequest{Filter: &pb.JobsRequest{Ids: everyWord()}})
		return err
	},
	"Usage": func(ctx context.Context, s *Service) error {
		_, err := s.Usage(ctx, &pb.UsageRequest{Ids: everyWord()})
		return err
	},
}

// Every walk over records ends when its caller has gone, and not only at its end: a flood of calls that are given up would otherwise be
// worked on for as long as if they had not been.
func TestWalksEndWithTheirCaller(t *testing.T) {
	for name, call := range walks {
		t.Run(name, func(t *testing.T) {
			s := crowd()
			stays := leaving(alice, -1)
			if err := call(stays, s); err != nil {
				t.Fatal(err)
			}
			least := min(crowdJobs, crowdNodes)/lookedAt - 1
			if stays.asked < least {
				t.Fatalf("the walk looked %d times whether its caller is there, want at least %d", stays.asked, least)
			}
			for n := range least {
				goes := leaving(alice, n)
				err := call(goes, s)
				if status.Code(err) != codes.Canceled && !errors.Is(err, context.Canceled) {
					t.Errorf("after %d looks the caller went, and the call answered %v", n, err)
				}
				if goes.asked > n+3 {
					t.Errorf("the caller went after %d looks, and the walk went on to look %d times", n, goes.asked)
				}
			}
		})
	}
}

// The names in a request are kept as written: a stepped list costs one range, however many tasks it covers. A longer list than is useful is
// refused with the figures.
func TestLongListsAreRefusedWithFigures(t *testing.T) {
	var steps []string
	for i := range 2000 {
		steps = append(steps, fmt.Sprintf("0-4000000:%d", i+2))
	}
	long := []string{"1_[" + strings.Join(steps, ",") + "]"}
	s, caller := crowd(), leaving(alice, -1)
	_, usage := s.Usage(caller, &pb.UsageRequest{Ids: long})
	_, explain := s.Explain(caller, &pb.ExplainRequest{Id: long[0]})
	_, priorities := s.Priorities(caller, &pb.PrioritiesRequest{Filter: &pb.JobsRequest{Ids: long}})
	_, cancel := s.CancelJobs(caller, &pb.CancelJobsRequest{ByFilter: true, Filter: &pb.JobsRequest{Ids: long}})
	for what, err := range map[string]error{"Usage": usage, "Explain": explain, "Priorities": priorities, "CancelJobs": cancel,
		"Jobs": s.Jobs(caller, &pb.JobsRequest{Ids: long}, &sent[pb.JobsReply]{})} {
		if p, _ := problemOf(err); p == nil || !strings.Contains(p.Error(), "256 ranges with a step") {
			t.Errorf("%s: %v", what, err)
		}
	}
	out := &sent[pb.JobsReply]{}
	if err := s.Jobs(caller, &pb.JobsRequest{Ids: []string{"7_[0-8388606:4]", "8_[1-8388607:2]"}}, out); err != nil {
		t.Fatal(err)
	}
	if len(out.got) != 1 || s.Writer.View().Jobs.Len() != crowdJobs {
		t.Errorf("%d pages", len(out.got))
	}
}

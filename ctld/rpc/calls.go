package rpc

import (
	"cmp"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// callLog counts the calls of commands for sdiag: by method and by user, since the start or the last reset.
type callLog struct {
	mu      sync.Mutex
	methods map[string]callCount
	users   map[uint32]callCount
	active  int // being served now

	log *slog.Logger // set with debug flag AuditRPCs
}

type callCount struct {
	n    uint64
	took time.Duration
}

// maxCountedUsers bounds the users that are counted separately; others are not counted.
const maxCountedUsers = 10000

func newCalls(log *slog.Logger) *callLog {
	return &callLog{log: log, methods: map[string]callCount{}, users: map[uint32]callCount{}}
}

// begin notes a call under way and returns the function that ends it.
func (c *callLog) begin(method string, uid uint32) (end func()) {
	start := time.Now()
	c.mu.Lock()
	c.active++
	c.mu.Unlock()
	return func() {
		took := time.Since(start)
		c.log.Debug("call", "flag", "AuditRPCs", "method", method, "uid", uid, "took", took)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.active--
		method = method[strings.LastIndexByte(method, '/')+1:]
		c.methods[method] = c.methods[method].plus(took)
		if _, known := c.users[uid]; known || len(c.users) < maxCountedUsers {
			c.users[uid] = c.users[uid].plus(took)
		}
	}
}

func (a callCount) plus(took time.Duration) callCount { return callCount{a.n + 1, a.took + took} }

func (a callCount) record(name string, uid uint32) *pb.CallStats {
	return &pb.CallStats{Name: name, Uid: uid, Count: a.n, TotalUs: uint64(a.took.Microseconds())}
}

// report lists the counts, the most frequent first, and the number of calls under way.
func (c *callLog) report(userName func(uid uint32) string, reset bool) (methods, users []*pb.CallStats, active int) {
	c.mu.Lock()
	for name, n := range c.methods {
		methods = append(methods, n.record(name, 0))
	}
	for uid, n := range c.users {
		users = append(users, n.record("", uid))
	}
	active = c.active
	if reset {
		c.methods, c.users = map[string]callCount{}, map[uint32]callCount{}
	}
	c.mu.Unlock()
	for _, u := range users {
		u.Name = userName(u.Uid)
	}
	byCount := func(a, b *pb.CallStats) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Uid, b.Uid))
	}
	slices.SortFunc(methods, byCount)
	slices.SortFunc(users, byCount)
	return methods, users, active
}

package live

import (
	"maps"
	"sync"

	"github.com/sluice-hpc/sluice/ctld/reactor"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// Samples keeps the latest sample of each device, beside the state: it is displayed, and decides only that a job leaves its GPUs idle. Safe
// for concurrent use.
type Samples struct {
	mu    sync.Mutex
	nodes map[string]map[string]*sampled
}

// sampled is one device. Times are of CLOCK_BOOTTIME on the controller's machine.
type sampled struct {
	last    *pb.DeviceSample
	heardNS int64
	busyNS  int64 // when it was last seen busy, or first seen at all
	known   bool  // the driver reports its utilization
}

// StaleNS is the age up to which a sample is displayed.
const StaleNS = int64(120e9)

// maxSampled bounds the devices of one node, maxSampleBytes each of them.
const (
	maxSampled     = 512
	maxSampleBytes = 16 << 10
)

// NewSamples makes an empty cache.
func NewSamples() *Samples { return &Samples{nodes: map[string]map[string]*sampled{}} }

// Put stores samples of a node's devices.
func (s *Samples) Put(node string, list []*pb.DeviceSample, nowNS int64) {
	if len(list) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.nodes[node]
	if of == nil {
		of = map[string]*sampled{}
		s.nodes[node] = of
	}
	for _, one := range list {
		if proto.Size(one) > maxSampleBytes {
			continue
		}
		reactor.PlainWords(one)
		d := of[one.Id]
		if d == nil {
			if len(of) >= maxSampled && !forget(of, nowNS-StaleNS) {
				continue
			}
			d = &sampled{busyNS: nowNS}
			of[one.Id] = d
		}
		d.last, d.heardNS, d.known = one, nowNS, one.UtilPercent >= 0
		if one.UtilPercent != 0 {
			d.busyNS = nowNS
		}
	}
}

// forget drops devices without news since then: instances that were merged back. It reports whether there were any.
func forget(of map[string]*sampled, sinceNS int64) bool {
	n := len(of)
	maps.DeleteFunc(of, func(_ string, d *sampled) bool { return d.heardNS < sinceNS })
	return len(of) < n
}

// Get returns the latest sample of a device, nil if there is none since sinceNS. idleNS is when it was last busy; 0 when it is busy, or
// unknown.
func (s *Samples) Get(node, id string, sinceNS int64) (last *pb.DeviceSample, idleNS int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.nodes[node][id]
	if d == nil || d.heardNS < sinceNS {
		return nil, 0
	}
	if d.known && d.busyNS < d.heardNS {
		idleNS = d.busyNS
	}
	return d.last, idleNS
}

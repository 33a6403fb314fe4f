package gpuhours

import (
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Sums are numbers of GPUs at a moment, or GPUs times seconds where moments were added up. Total is the sum of Down, Used, Idle, Unknown
// and Free; Lost is a part of Asked, and Asked of Free.
type Sums struct {
	Total   float64
	Down    float64 // not held by a job, and faulty, used by a process outside of jobs, or on a node that accepts no jobs
	Used    float64 // held by jobs and busy, by their utilization
	Idle    float64 // held by jobs, the rest of their utilization
	Unknown float64 // held by jobs, with unknown utilization
	Free    float64
	Asked   float64 // free while jobs waited for GPUs there
	Lost    float64 // of it, to fragmentation
	Waiting float64 // requested by waiting jobs; not a part of Total
}

// Add adds o, times a factor.
func (s *Sums) Add(o *Sums, by float64) {
	to, from := s.Fields(), o.Fields()
	for i := range to {
		*to[i] += *from[i] * by
	}
}

// Fields returns the sums in the order in which they are stored.
func (s *Sums) Fields() [9]*float64 {
	return [9]*float64{&s.Total, &s.Down, &s.Used, &s.Idle, &s.Unknown, &s.Free, &s.Asked, &s.Lost, &s.Waiting}
}

// Loss identifies a user's waiting jobs that lost GPUs to fragmentation.
type Loss struct {
	UID                uint32
	Account, Partition string
}

// Lost are GPUs, or GPUs times seconds; Beside is the part for which CPUs or memory were missing beside the GPUs.
type Lost struct{ GPUs, Beside float64 }

// Moment holds the use of the GPUs at a moment: all of them, those of each partition, and the losses.
type Moment struct {
	All        Sums
	Partitions map[string]*Sums
	Lost       map[Loss]Lost
}

// Sample returns the utilization of a node's device in percent; known is false without a recent sample.
type Sample func(node, id string) (percent int64, known bool)

// Look counts the use of GPUs now, nil if there are none.
func Look(v *state.View, sample Sample) *Moment {
	m := &Moment{Partitions: map[string]*Sums{}, Lost: map[Loss]Lost{}}
	var pool []*place
	for _, n := range v.Nodes() {
		if !hasGPUs(n) {
			continue
		}
		sums, free := lookAt(v, n, sample)
		m.All.Add(&sums, 1)
		for _, p := range n.Partitions {
			m.of(p).Add(&sums, 1)
		}
		if n.Up() && n.LinkUp && len(free) > 0 {
			pool = append(pool, newPlace(n, free))
		}
	}
	if m.All.Total == 0 {
		return nil
	}
	m.wait(v, pool)
	return m
}

func (m *Moment) of(partition string) *Sums {
	s := m.Partitions[partition]
	if s == nil {
		s = &Sums{}
		m.Partitions[partition] = s
	}
	return s
}

func hasGPUs(n *state.Node) bool {
	return n.Inv.Has("gpu") && n.State != pb.NodeState_NODE_FUTURE
}

// lookAt counts the GPUs of a node, and by type those that a job could have whole.
func lookAt(v *state.View, n *state.Node, sample Sample) (s Sums, free []freeGPUs) {
	held, counted := map[uint32]float64{}, 0.0
	for _, id := range n.Jobs {
		j := v.Jobs.Get(id)
		if j == nil {
			continue
		}
		for _, a := range j.Alloc {
			if a.Node != n.Name || a.Ended {
				continue
			}
			for _, d := range a.Devices {
				part := Part(n.Inv, d)
				if part == 0 {
					continue
				}
				if d.Count > 0 {
					counted += part
				} else if have := n.Inv.Current(d); have != nil {
					held[have.Index] += part
				}
				percent, known := sample(n.Name, n.Inv.Instance(d))
				if !known {
					s.Unknown += part
					continue
				}
				busy := part * float64(min(max(percent, 0), 100)) / 100
				s.Used, s.Idle = s.Used+busy, s.Idle+part-busy
			}
		}
	}
	takes := n.Asleep() || n.Up() && n.LinkUp
	for i := range n.Inv.Kinds {
		k := &n.Inv.Kinds[i]
		if k.Name != "gpu" || k.Shared || k.NoConsume {
			continue
		}
		for _, d := range k.Devices {
			whole := size(n.Inv, d)
			s.Total += whole
			rest := max(0, whole-held[d.Index])
			if d.Id == "" && counted > 0 && rest > 0 { // GPUs that are only counted have no identity
				taken := min(rest, counted)
				rest, counted = rest-taken, counted-taken
			}
			if rest < 1e-9 {
				continue
			}
			if !takes || d.Fault != "" || d.Foreign != "" && held[d.Index] == 0 {
				s.Down += rest
				continue
			}
			s.Free += rest
			if rest == whole && held[d.Index] == 0 {
				free = addFree(free, k.Type)
			}
		}
	}
	s.Total = max(s.Total, s.Used+s.Idle+s.Unknown) // a job may hold GPUs that its node no longer has
	return s, free
}

func addFree(list []freeGPUs, typ string) []freeGPUs {
	for i := range list {
		if list[i].typ == typ {
			list[i].n++
			return list
		}
	}
	return append(list, freeGPUs{typ, 1})
}

// Part returns which fraction of a physical GPU a device of an allocation is, 0 = it is none. For shards it is only known while the node
// has the GPU, and 0 otherwise.
func Part(inv *state.Inventory, d *pb.GresDevice) float64 {
	switch {
	case d.Share > 0:
		have := inv.Current(d)
		if have == nil || have.Shares == 0 || have.Name != "gpu" {
			return 0
		}
		return min(1, float64(d.Share)/float64(have.Shares)) * size(inv, have)
	case d.Name != "gpu":
		return 0
	case d.Count > 0:
		return float64(d.Count)
	}
	if slices, ok := slicesOf(d.Type); ok {
		parent := d.Parent
		if parent == "" {
			parent = inv.Device(d.Id).GetParent()
		}
		return min(1, float64(slices)/float64(most(inv, parent, d.Type)))
	}
	return 1
}

// size returns which fraction of a physical GPU a device of a node is.
func size(inv *state.Inventory, d *pb.Device) float64 {
	if d.Parent == "" {
		return 1
	}
	if slices, ok := slicesOf(d.Type); ok {
		return min(1, float64(slices)/float64(most(inv, d.Parent, d.Type)))
	}
	return 1
}

// slicesOf parses the compute slices of an instance from its type: "a100_3g.20gb" and "3g.20gb" have three.
func slicesOf(typ string) (slices int, ok bool) {
	head, tail, found := strings.Cut(typ[strings.LastIndexByte(typ, '_')+1:], "g.")
	if !found || !strings.Contains(tail, "gb") {
		return 0, false
	}
	n, err := strconv.Atoi(head)
	return n, err == nil && n > 0
}

// most returns the number of compute slices of a GPU: the driver's number, else four for an A30 and seven for all others.
func most(inv *state.Inventory, gpu, typ string) (n int) {
	for _, p := range inv.Device(gpu).GetMigProfiles() {
		n = max(n, int(p.Slices))
	}
	if n > 0 {
		return n
	}
	if strings.HasPrefix(typ, "a30_") {
		return 4
	}
	return 7
}

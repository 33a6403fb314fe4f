package sched

import "github.com/sluice-hpc/sluice/sched/priority"

// Weights configures multifactor priority (PriorityWeight*, PriorityMaxAge, …).
type Weights struct {
	Basic       bool // priority/basic: by submission alone
	Age         uint32
	FairShare   uint32
	JobSize     uint32
	Partition   uint32
	QOS         uint32
	Assoc       uint32
	TRES        TRESWeights
	MaxAgeS     int64 // 0 means 7 days
	SmallFirst  bool  // PriorityFavorSmall
	CalcPeriodS int64 // factors are taken at multiples of it; 0 means 300
}

// cluster is what the factors are relative to.
type cluster struct {
	nodes, cpus, memMiB, gpus int64
	partition                 uint16 // highest PriorityJobFactor
	qos                       uint32 // highest QOS priority
	factorOf                  map[string]uint32
	shares                    map[[2]string]float64
}

// measure sums up the cluster for the priority factors.
func measure(in *Snapshot) cluster {
	c := cluster{factorOf: map[string]uint32{}, shares: map[[2]string]float64{}}
	for _, n := range in.Nodes {
		c.nodes++
		c.cpus += int64(max(n.CPUs, 1))
		c.memMiB += n.MemMiB
		for i := range n.Gres {
			if n.Gres[i].Name == "gpu" {
				c.gpus += int64(len(n.Gres[i].Devices))
			}
		}
	}
	for _, p := range in.Partitions {
		c.partition = max(c.partition, p.PriorityFactor)
	}
	for _, q := range in.QOS {
		c.qos = max(c.qos, q.Priority)
		c.factorOf[q.Name] = q.Priority
	}
	for _, s := range in.Shares {
		c.shares[[2]string{s.Account, s.User}] = s.Factor
	}
	return c
}

// size is what a request asks for in all, before any node is chosen.
type size struct{ nodes, cpus, memMiB, gpus int64 }

func sizeOf(r *Request) size {
	d := workOut(r)
	nodes := int64(d.lo)
	out := size{nodes: nodes, cpus: int64(d.tasks) * int64(max(1, r.CPUsPerTask))}
	out.cpus = max(out.cpus, nodes*int64(r.MinCPUs))
	for _, g := range r.Gres {
		if g.Name != "gpu" {
			continue
		}
		switch g.Per {
		case PerJob:
			out.gpus += g.Count
		case PerTask:
			out.gpus += g.Count * int64(d.tasks)
		case PerSocket:
			out.gpus += g.Count * nodes * int64(max(1, r.Sockets))
		default:
			out.gpus += g.Count * nodes
		}
	}
	out.cpus = max(out.cpus, out.gpus*int64(r.CPUsPerGPU))
	switch {
	case r.MemCPUMiB > 0:
		out.memMiB = out.cpus * r.MemCPUMiB
	case r.MemGPUMiB > 0:
		out.memMiB = out.gpus * r.MemGPUMiB
	default:
		out.memMiB = nodes * r.MemNodeMiB
	}
	return out
}

// share is the largest part that a request takes of any of the cluster's
// resources, in 2^-16, at least 1.
func (c *cluster) share(r *Request) int64 {
	sz := sizeOf(r)
	part := func(a, b int64) int64 { return min(a, b) << 16 / max(1, b) }
	return max(1, part(sz.cpus, c.cpus), part(sz.memMiB, c.memMiB), part(sz.gpus, c.gpus))
}

// partsOf are a job's priority terms at now.
func partsOf(c *cluster, w *Weights, j *Job, partition uint16, now int64) priority.Parts {
	req := j.Request
	if req == nil {
		req = &Request{}
	}
	sz := sizeOf(req)
	maxAge := w.MaxAgeS
	if maxAge == 0 {
		maxAge = 7 * 86400
	}
	return priority.Parts{
		Age:       priority.Part{Factor: priority.Age(now, eligibleAt(j), maxAge), Weight: float64(w.Age)},
		FairShare: priority.Part{Factor: c.shares[[2]string{j.Account, j.User}], Weight: float64(w.FairShare)},
		JobSize:   priority.Part{Factor: priority.JobSize(sz.nodes, c.nodes, sz.cpus, c.cpus, w.SmallFirst), Weight: float64(w.JobSize)},
		Partition: priority.Part{Factor: priority.Fraction(int64(partition), int64(c.partition)), Weight: float64(w.Partition)},
		QOS:       priority.Part{Factor: priority.Fraction(int64(c.factorOf[j.QOS]), int64(c.qos)), Weight: float64(w.QOS)},
		Assoc:     priority.Part{Factor: j.AssocFactor, Weight: float64(w.Assoc)},
		CPU:       priority.Part{Factor: priority.Fraction(sz.cpus, c.cpus), Weight: w.TRES.CPU},
		Mem:       priority.Part{Factor: priority.Fraction(sz.memMiB, c.memMiB), Weight: w.TRES.MemGiB},
		Node:      priority.Part{Factor: priority.Fraction(sz.nodes, c.nodes), Weight: w.TRES.Node},
		GPU:       priority.Part{Factor: priority.Fraction(sz.gpus, c.gpus), Weight: w.TRES.GPU},
		Site:      j.SiteFactor,
		Nice:      j.Nice,
	}
}

// period is the calculation period that now lies in: priorities change only
// from one to the next, so that the order of the queue does not depend on when
// a pass happens to run.
func (w *Weights) period(now int64) int64 {
	p := w.CalcPeriodS
	if p <= 0 {
		p = 300
	}
	return now - now%p
}

func (s *Scheduler) factors(j *Job) priority.Parts {
	highest := uint16(0)
	for _, name := range j.Partitions {
		if p := s.partition(name); p != nil {
			highest = max(highest, p.rec.PriorityFactor)
		}
	}
	return partsOf(&s.cluster, &s.params.Weights, j, highest, s.params.Weights.period(s.now))
}

// Priorities are the terms of a job's priority in a snapshot, and their total,
// for sprio and squeue.
func Priorities(p *Params, in *Snapshot, jobs []*Job) []priority.Parts {
	c := measure(in)
	factor := map[string]uint16{}
	for _, part := range in.Partitions {
		factor[part.Name] = part.PriorityFactor
	}
	out := make([]priority.Parts, len(jobs))
	for i, j := range jobs {
		highest := uint16(0)
		for _, name := range j.Partitions {
			highest = max(highest, factor[name])
		}
		out[i] = partsOf(&c, &p.Weights, j, highest, p.Weights.period(in.Now))
	}
	return out
}

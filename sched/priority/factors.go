package priority

import (
	"github.com/sluice-hpc/sluice/sched/record"
	"github.com/sluice-hpc/sluice/sched/sizing"
)

// Cluster holds the totals and maxima that factors are relative to.
type Cluster struct {
	nodes, cpus, memMiB, gpus int64
	partition                 uint16 // highest PriorityJobFactor
	qos                       uint32 // highest QOS priority
	factorOf                  map[string]uint32
	shares                    map[[2]string]float64
}

// Measure sums up the cluster for the priority factors.
func Measure(in *record.Snapshot) Cluster {
	c := Cluster{factorOf: map[string]uint32{}, shares: map[[2]string]float64{}}
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

// Share returns the largest fraction that a request takes of any of the cluster's resources, in 2^-16, at least 1.
func (c *Cluster) Share(r *record.Request) int64 {
	sz := sizing.Count(r)
	part := func(a, b int64) int64 { return min(a, b) << 16 / max(1, b) }
	return max(1, part(sz.CPUs, c.cpus), part(sz.MemMiB, c.memMiB), part(sz.GPUs, c.gpus))
}

// PartsOf returns a job's priority terms at now.
func PartsOf(c *Cluster, w *record.Weights, j *record.Job, partition uint16, now int64) Parts {
	req := j.Request
	if req == nil {
		req = &record.Request{}
	}
	sz := sizing.Count(req)
	maxAge := w.MaxAgeS
	if maxAge == 0 {
		maxAge = 7 * 86400
	}
	return Parts{
		Age:       Part{Factor: Age(now, record.AgesFrom(j), maxAge), Weight: float64(w.Age)},
		FairShare: Part{Factor: c.shares[[2]string{j.Account, j.User}], Weight: float64(w.FairShare)},
		JobSize:   Part{Factor: JobSize(sz.Nodes, c.nodes, sz.CPUs, c.cpus, w.SmallFirst), Weight: float64(w.JobSize)},
		Partition: Part{Factor: Fraction(int64(partition), int64(c.partition)), Weight: float64(w.Partition)},
		QOS:       Part{Factor: Fraction(int64(c.factorOf[j.QOS]), int64(c.qos)), Weight: float64(w.QOS)},
		Assoc:     Part{Factor: j.AssocFactor, Weight: float64(w.Assoc)},
		CPU:       Part{Factor: Fraction(sz.CPUs, c.cpus), Weight: w.TRES.CPU},
		Mem:       Part{Factor: Fraction(sz.MemMiB, c.memMiB), Weight: w.TRES.MemGiB},
		Node:      Part{Factor: Fraction(sz.Nodes, c.nodes), Weight: w.TRES.Node},
		GPU:       Part{Factor: Fraction(sz.GPUs, c.gpus), Weight: w.TRES.GPU},
		Site:      j.SiteFactor,
		Nice:      j.Nice,
	}
}

// Of returns the priority terms of jobs in a snapshot, for sprio and squeue.
func Of(p *record.Params, in *record.Snapshot, jobs []*record.Job) []Parts {
	c := Measure(in)
	factor := map[string]uint16{}
	for _, part := range in.Partitions {
		factor[part.Name] = part.PriorityFactor
	}
	out := make([]Parts, len(jobs))
	for i, j := range jobs {
		highest := uint16(0)
		for _, name := range j.Partitions {
			highest = max(highest, factor[name])
		}
		out[i] = PartsOf(&c, &p.Weights, j, highest, p.Weights.Period(in.Now))
	}
	return out
}

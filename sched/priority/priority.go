// Package priority computes multifactor priority as in the manual page of priority_multifactor: a weighted sum of factors between 0 and 1.
package priority

import "math"

// Part is one term: its factor, 0..1, and its weight.
type Part struct {
	Factor float64
	Weight float64
}

// Value returns the term's contribution.
func (p Part) Value() float64 { return clamp(p.Factor) * p.Weight }

// Parts are the terms of a job's priority, as sprio shows them.
type Parts struct {
	Age, FairShare, JobSize, Partition, QOS, Assoc Part
	CPU, Mem, Node, GPU                            Part // TRES
	Site                                           int32
	Nice                                           int32
}

// Total returns the priority. A job that is not held has at least 1, because 0 means held.
func Total(p Parts) uint32 {
	sum := float64(p.Site) - float64(p.Nice)
	for _, t := range [...]Part{p.Age, p.FairShare, p.JobSize, p.Partition, p.QOS, p.Assoc, p.CPU, p.Mem, p.Node, p.GPU} {
		sum += t.Value()
	}
	return uint32(math.Max(1, math.Min(sum, math.MaxUint32)))
}

func clamp(f float64) float64 {
	if !(f > 0) { // NaN too
		return 0
	}
	return math.Min(f, 1)
}

// Age returns the fraction of maxAgeS that has passed since from, at most 1.
func Age(now, from, maxAgeS int64) float64 {
	if now <= from || maxAgeS <= 0 {
		return 0
	}
	return clamp(float64(now-from) / float64(maxAgeS))
}

// JobSize returns the mean of the fractions of the cluster's nodes and CPUs in a request, or its complement when small jobs are favoured.
func JobSize(nodes, allNodes, cpus, allCPUs int64, smallFirst bool) float64 {
	f := (fraction(nodes, allNodes) + fraction(cpus, allCPUs)) / 2
	if smallFirst {
		return 1 - f
	}
	return f
}

func fraction(a, b int64) float64 {
	if b <= 0 {
		return 0
	}
	return clamp(float64(a) / float64(b))
}

// Fraction returns a as a fraction of b, 0..1.
func Fraction(a, b int64) float64 { return fraction(a, b) }

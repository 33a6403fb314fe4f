package format

import (
	"fmt"
	"strconv"
	"sync"

	"github.com/sluice-hpc/sluice/client/msg"
)

// Priority is one row of sprio: a job in one of its partitions, or (Weights) the weight of each term.
type Priority struct {
	*msg.PriorityRecord
	Weights map[string]float64 // set for the row of weights
}

// Priorities is the table of sprio's fields (sprio(1), --format).
var Priorities = sync.OnceValue(func() *Table[Priority] { return NewTable(priorityFields()) })

type priorityText = func(b []byte, c *Context, p Priority) []byte

// term is a pair of fields for a term of the priority: normalized (lower-case letter) and weighted.
func term(norm, weighted byte, header, weight string, of, normOf func(*msg.PriorityRecord) float64) []Field[Priority] {
	fields := []Field[Priority]{{Letter: weighted, Header: header, Text: weightedText(weight, of), Key: byFloat(of)}}
	if norm != 0 {
		fields = append(fields, Field[Priority]{Letter: norm, Header: header, Key: byFloat(normOf),
			Text: func(b []byte, _ *Context, p Priority) []byte {
				if p.Weights != nil {
					return strconv.AppendFloat(b, p.Weights[weight], 'f', 0, 64)
				}
				return strconv.AppendFloat(b, normOf(p.PriorityRecord), 'f', 7, 64)
			}})
	}
	return fields
}

func weightedText(weight string, of func(*msg.PriorityRecord) float64) priorityText {
	return func(b []byte, _ *Context, p Priority) []byte {
		if p.Weights != nil {
			return strconv.AppendFloat(b, p.Weights[weight], 'f', 0, 64)
		}
		return strconv.AppendFloat(b, of(p.PriorityRecord), 'f', 0, 64)
	}
}

func byFloat(of func(*msg.PriorityRecord) float64) priorityText {
	return func(b []byte, _ *Context, p Priority) []byte {
		return appendNumberKey(b, int64(of(p.PriorityRecord)*1e6))
	}
}

// jobOnly leaves the field empty in the row of weights.
func jobOnly(get func(b []byte, c *Context, p Priority) []byte) priorityText {
	return func(b []byte, c *Context, p Priority) []byte {
		if p.Weights != nil {
			return b
		}
		return get(b, c, p)
	}
}

func priorityFields() []Field[Priority] {
	type record = msg.PriorityRecord
	name := func(get func(*record) string) priorityText {
		return jobOnly(func(b []byte, _ *Context, p Priority) []byte { return append(b, get(p.PriorityRecord)...) })
	}
	total := (*record).GetPriority
	fields := []Field[Priority]{
		{Letter: 'c', Header: "CLUSTER",
			Text: jobOnly(func(b []byte, c *Context, _ Priority) []byte { return append(b, Or(c.Cluster, null)...) })},
		{Letter: 'i', Header: "JOBID", Key: func(b []byte, _ *Context,
			p Priority) []byte {
			return appendNumberKey(b, int64(p.GetJobId()))
		},
			Text: func(b []byte, _ *Context, p Priority) []byte {
				if p.Weights != nil {
					return append(b, "Weights"...)
				}
				return strconv.AppendUint(b, uint64(p.GetJobId()), 10)
			}},
		{Letter: 'u', Header: "USER", Text: name((*record).GetUser)},
		{Letter: 'r', Header: "PARTITION", Text: name((*record).GetPartition)},
		{Letter: 'y', Header: "PRIORITY", Key: byFloat(total), Text: jobOnly(func(b []byte, _ *Context, p Priority) []byte {
			return strconv.AppendFloat(b, total(p.PriorityRecord)/float64(msg.Unlimited), 'f', 14, 64)
		})},
		{Letter: 'Y', Header: "PRIORITY", Key: byFloat(total), Text: jobOnly(func(b []byte, _ *Context, p Priority) []byte {
			return strconv.AppendInt(b, int64(total(p.PriorityRecord)), 10) // truncated, as in Slurm
		})},
		{Letter: 'N', Header: "NICE", Key: byFloat(func(r *record) float64 { return float64(r.GetNice()) }),
			Text: jobOnly(func(b []byte, _ *Context, p Priority) []byte {
				return strconv.AppendInt(b, int64(p.GetNice()), 10)
			})},
		{Letter: 't', Header: "TRES", Text: tresTerm},
		{Letter: 'T', Header: "TRES", Text: tresTerm},
	}
	for _, t := range [][]Field[Priority]{
		term(0, 'S', "SITE", "site", (*record).GetSite, nil),
		term('a', 'A', "AGE", "age", (*record).GetAge, (*record).GetAgeNorm),
		term('b', 'B', "ASSOC", "assoc", (*record).GetAssoc, (*record).GetAssocNorm),
		term('f', 'F', "FAIRSHARE", "fairshare", (*record).GetFairShare, (*record).GetFairShareNorm),
		term('j', 'J', "JOBSIZE", "jobsize", (*record).GetJobSize, (*record).GetJobSizeNorm),
		term('p', 'P', "PARTITION", "partition", (*record).GetPartitionPart, (*record).GetPartitionNorm),
		term('q', 'Q', "QOS", "qos", (*record).GetQosPart, (*record).GetQosNorm),
	} {
		fields = append(fields, t...)
	}
	return fields
}

// tresNames are the resources that can have weights of their own.
var tresNames = [...]string{"cpu", "mem", "node", "gres/gpu"}

func tresTerm(b []byte, _ *Context, p Priority) []byte {
	if p.Weights == nil {
		return append(b, p.GetTres()...)
	}
	start := len(b)
	for _, name := range tresNames {
		if w := p.Weights[name]; w != 0 {
			if len(b) > start {
				b = append(b, ',')
			}
			b = fmt.Appendf(b, "%s=%.0f", name, w)
		}
	}
	if len(b) == start {
		return append(b, null...)
	}
	return b
}

// PriorityFormat is sprio's own format: the terms with a weight, all of them with long, unweighted with norm.
func PriorityFormat(weights map[string]float64, long, norm, user bool) string {
	spec := "%.15i %9r"
	if long || user {
		spec += " %.8u"
	}
	if norm {
		spec += " %10y"
	} else {
		spec += " %.10Y %.10S"
	}
	for _, t := range [...]struct{ name, norm, weighted string }{{"age", " %10a", " %.10A"}, {"assoc", " %10b", " %.10B"},
		{"fairshare", " %10f", " %.10F"},
		{"jobsize", " %10j", " %.10J"}, {"partition", " %10p", " %.10P"}, {"qos", " %10q", " %.10Q"}} {
		switch {
		case weights[t.name] == 0 && !long:
		case norm:
			spec += t.norm
		default:
			spec += t.weighted
		}
	}
	tres := false
	for _, name := range tresNames {
		tres = tres || weights[name] != 0
	}
	switch {
	case long && norm, tres && norm:
		spec += " %20t"
	case long:
		spec += " %.11N %.20T"
	case tres:
		spec += " %20T"
	}
	return spec
}

package format

import (
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/proto/coding"
)

// Needs says which fields of a record something reads: of a job those of JobRecord and of its JobSpec, of a node those of NodeRecord.
type Needs struct {
	Job, Spec, Node coding.FieldSet
}

var everything = Needs{Job: coding.EveryField, Spec: coding.EveryField, Node: coding.EveryField}

// With is what either of two needs.
func (n Needs) With(o Needs) Needs {
	return Needs{Job: n.Job.With(o.Job), Spec: n.Spec.With(o.Spec), Node: n.Node.With(o.Node)}
}

// AskJobs writes the needs into a request for jobs.
func (n Needs) AskJobs(r *msg.JobsRequest) *msg.JobsRequest {
	r.Fields, r.SpecFields = numbers(n.Job), numbers(n.Spec)
	return r
}

// AskNodes writes the needs into a request for nodes.
func (n Needs) AskNodes(r *msg.NodesRequest) *msg.NodesRequest {
	r.Fields = numbers(n.Node)
	return r
}

// numbers are the numbers of a request, where none stands for all.
func numbers(s coding.FieldSet) []uint32 {
	if s == coding.EveryField {
		return nil
	}
	if s == (coding.FieldSet{}) {
		return []uint32{1}
	}
	return s.Numbers()
}

// key is the name by which the needs of a field are known.
func (f *Field[T]) key() string {
	if len(f.Names) > 0 {
		return f.Names[0]
	}
	return string(f.Letter)
}

// NeedsOfJobs is what the columns and sort keys of squeue read.
func NeedsOfJobs(l Layout[Job], o Order[Job]) Needs { return needs(l, o, jobNeeds) }

// NeedsOfNodes is what the columns and sort keys of sinfo read.
func NeedsOfNodes(l Layout[*NodeGroup], o Order[*NodeGroup]) Needs { return needs(l, o, nodeNeeds) }

func needs[T any](l Layout[T], o Order[T], of func(key string) Needs) (n Needs) {
	for i := range l {
		if l[i].Field != nil {
			n = n.With(of(l[i].Field.key()))
		}
	}
	for _, k := range o {
		n = n.With(of(k.Field.key()))
	}
	return n
}

package format

import (
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/proto/coding"
)

// Needs are the fields of a record that are read: for a job those of JobRecord and its JobSpec, for a node those of NodeRecord.
type Needs struct {
	Job, Spec, Node coding.FieldSet
}

var everything = Needs{Job: coding.EveryField, Spec: coding.EveryField, Node: coding.EveryField}

// With returns the union of both.
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

// numbers returns the numbers for a request, in which an empty list means all fields.
func numbers(s coding.FieldSet) []uint32 {
	if s == coding.EveryField {
		return nil
	}
	if s == (coding.FieldSet{}) {
		return []uint32{1}
	}
	return s.Numbers()
}

// key is the name of a field in the tables of needs.
func (f *Field[T]) key() string {
	if len(f.Names) > 0 {
		return f.Names[0]
	}
	return string(f.Letter)
}

// NeedsOfJobs returns the fields read by squeue's columns and sort keys.
func NeedsOfJobs(l Layout[Job], o Order[Job]) Needs { return needs(l, o, jobNeeds) }

// NeedsOfNodes returns the fields read by sinfo's columns and sort keys.
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

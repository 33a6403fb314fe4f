package pb

import "github.com/sluice-hpc/sluice/proto/coding"

// Fields says which fields of records are asked for. Records are encoded by it (encode.gen.go) straight from where they are kept:
// protobuf's library can leave fields out only of a copy, and goes through all two hundred fields of a job for ten.
type Fields struct {
	Job  coding.FieldSet
	Spec coding.FieldSet
	Node coding.FieldSet
}

// AskedOfJobs are the fields that a request wants.
func AskedOfJobs(r *JobsRequest) *Fields {
	return &Fields{Job: coding.FieldsOf(r.GetFields()), Spec: coding.FieldsOf(r.GetSpecFields())}
}

// AskedOfNodes are the fields that a request wants.
func AskedOfNodes(r *NodesRequest) *Fields {
	return &Fields{Node: coding.FieldsOf(r.GetFields())}
}

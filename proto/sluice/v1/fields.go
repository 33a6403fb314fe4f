package pb

import "github.com/sluice-hpc/sluice/proto/coding"

// Fields selects the fields of records in an answer. Records are encoded with it (encode.gen.go) directly from the state:
// protobuf's library can omit fields only in a copy, and visits all two hundred fields of a job to encode ten.
type Fields struct {
	Job  coding.FieldSet
	Spec coding.FieldSet
	Node coding.FieldSet
}

// AskedOfJobs returns the fields that a request selects.
func AskedOfJobs(r *JobsRequest) *Fields {
	return &Fields{Job: coding.FieldsOf(r.GetFields()), Spec: coding.FieldsOf(r.GetSpecFields())}
}

// AskedOfNodes returns the fields that a request selects.
func AskedOfNodes(r *NodesRequest) *Fields {
	return &Fields{Node: coding.FieldsOf(r.GetFields())}
}

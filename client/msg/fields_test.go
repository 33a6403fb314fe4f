package msg

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	"github.com/sluice-hpc/sluice/proto/coding"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Some fields of any record are encoded as protobuf's library encodes a copy without the others.
func TestSomeFieldsAreCodedAsProtobufDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		numbers := rapid.SliceOf(rapid.Uint32Range(1, 135))
		in := &pb.Fields{Job: coding.FieldsOf(numbers.Draw(t, "job")), Spec: coding.FieldsOf(numbers.Draw(t, "spec")),
			Node: coding.FieldsOf(numbers.Draw(t, "node"))}
		job, node := &pb.JobRecord{}, &pb.NodeRecord{}
		fill(t, job.ProtoReflect())
		fill(t, node.ProtoReflect())
		got := [][]byte{job.AppendFields(nil, in), node.AppendFields(nil, in)}
		keep(job.ProtoReflect(), in.Job)
		if job.Spec != nil {
			keep(job.Spec.ProtoReflect(), in.Spec)
		}
		keep(node.ProtoReflect(), in.Node)
		for i, m := range []proto.Message{job, node} {
			want, err := deterministic.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got[i], want) {
				t.Fatalf("encoded as %x, protobuf gives %x", got[i], want)
			}
		}
	})
}

// keep clears all fields of a message but those of a set.
func keep(m protoreflect.Message, in coding.FieldSet) {
	for i := range m.Descriptor().Fields().Len() {
		if f := m.Descriptor().Fields().Get(i); !in.Has(int(f.Number())) {
			m.Clear(f)
		}
	}
}

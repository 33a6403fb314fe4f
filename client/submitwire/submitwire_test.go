package submitwire

import (
	"bytes"
	"math"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

var deterministic = proto.MarshalOptions{Deterministic: true}

// Every field of every message is set alone and compared: a field added to the messages without running the generator fails
// here.
func TestEachFieldEncodesAsProtobufDoes(t *testing.T) {
	for _, m := range []proto.Message{&pb.SubmitRequest{}, &pb.JobSpec{}, &pb.Rlimit{}} {
		fields := m.ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			f := fields.Get(i)
			one := m.ProtoReflect().New()
			set(one, f)
			compare(t, request(one.Interface()), string(f.FullName()))
		}
	}
}

// request puts a message where it stands in a request.
func request(m proto.Message) *pb.SubmitRequest {
	switch m := m.(type) {
	case *pb.SubmitRequest:
		return m
	case *pb.JobSpec:
		return &pb.SubmitRequest{Spec: m}
	case *pb.Rlimit:
		return &pb.SubmitRequest{Spec: &pb.JobSpec{Rlimits: []*pb.Rlimit{m, {}}}}
	}
	panic("no place for this message")
}

func set(m protoreflect.Message, f protoreflect.FieldDescriptor) {
	if f.IsList() {
		list := m.Mutable(f).List()
		if f.Kind() == protoreflect.MessageKind {
			list.AppendMutable()
			return
		}
		list.Append(value(f))
		list.Append(value(f))
		return
	}
	if f.Kind() == protoreflect.MessageKind {
		m.Mutable(f)
		return
	}
	m.Set(f, value(f))
}

func value(f protoreflect.FieldDescriptor) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString("héllo")
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte{0, 255})
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(math.MaxUint32)
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(math.MaxUint64)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(-5)
	case protoreflect.Sint32Kind:
		return protoreflect.ValueOfInt32(-7)
	}
	panic("no value for " + f.Kind().String())
}

func compare(t interface {
	Helper()
	Fatalf(string, ...any)
}, m *pb.SubmitRequest, what string) {
	t.Helper()
	want, err := deterministic.Marshal(m)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if got := AppendRequest(nil, m); !bytes.Equal(got, want) {
		t.Fatalf("%s: encoded as %x, protobuf gives %x; run go generate ./client/submitwire", what, got, want)
	}
}

func TestWholeRequests(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &pb.SubmitRequest{Spec: &pb.JobSpec{}}
		fields := m.Spec.ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			if rapid.Bool().Draw(t, string(fields.Get(i).Name())) {
				set(m.Spec.ProtoReflect(), fields.Get(i))
			}
		}
		m.Script = rapid.SliceOf(rapid.Byte()).Draw(t, "script")
		m.Env = rapid.SliceOf(rapid.String()).Draw(t, "env")
		got := &pb.SubmitRequest{}
		if err := proto.Unmarshal(AppendRequest(nil, m), got); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(got, m) {
			t.Fatalf("encoded and decoded, %v became %v", m, got)
		}
	})
}

func TestReply(t *testing.T) {
	want := &pb.SubmitReply{JobId: 7, Seq: 1 << 40, Warning: "w", StartNs: -3, Nodes: "n[1-2]", Partition: "p", Cpus: 4}
	b, _ := proto.Marshal(want)
	b = append(b, 0xfa, 0x3f, 1, 'x') // a field of a later version
	got := &pb.SubmitReply{}
	if err := Reply(b, got); err != nil || !proto.Equal(got, want) {
		t.Errorf("Reply = %v, %v; want %v", got, err, want)
	}
	for i := range b {
		_ = Reply(b[:i], &pb.SubmitReply{}) // must not panic
	}
	if err := Reply([]byte{0x0a, 0xff}, &pb.SubmitReply{}); err == nil {
		t.Error("a cut answer was accepted")
	}
}

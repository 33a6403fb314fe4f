package submitwire

import (
	"bytes"
	"math"
	"reflect"
	"testing"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
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
	if got := AppendRequest(nil, plain(m)); !bytes.Equal(got, want) {
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
		if err := proto.Unmarshal(AppendRequest(nil, plain(m)), got); err != nil {
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
	got, err := Reply(b)
	wanted := SubmitReply{JobId: 7, Seq: 1 << 40, Warning: "w", StartNs: -3, Nodes: "n[1-2]", Partition: "p", Cpus: 4}
	if err != nil || *got != wanted {
		t.Errorf("Reply = %+v, %v; want %+v", got, err, wanted)
	}
	for i := range b {
		_, _ = Reply(b[:i]) // must not panic
	}
	if _, err := Reply([]byte{0x0a, 0xff}); err == nil {
		t.Error("a cut answer was accepted")
	}
}

// plain copies a message into the struct of the same name, field by field.
func plain(m *pb.SubmitRequest) *SubmitRequest {
	out := &SubmitRequest{}
	copyFields(reflect.ValueOf(out).Elem(), reflect.ValueOf(m).Elem())
	return out
}

func copyFields(to, from reflect.Value) {
	for i := range to.NumField() {
		name := to.Type().Field(i).Name
		copyValue(to.Field(i), from.FieldByName(name))
	}
}

func copyValue(to, from reflect.Value) {
	switch {
	case to.Kind() == reflect.Pointer && !from.IsNil():
		to.Set(reflect.New(to.Type().Elem()))
		copyFields(to.Elem(), from.Elem())
	case to.Kind() == reflect.Slice && to.Type().Elem().Kind() == reflect.Pointer:
		for i := range from.Len() {
			to.Set(reflect.Append(to, reflect.Zero(to.Type().Elem())))
			copyValue(to.Index(i), from.Index(i))
		}
	case to.Kind() != reflect.Pointer:
		to.Set(from)
	}
}

func TestJobEndAndGres(t *testing.T) {
	b, _ := proto.Marshal(&pb.WaitJobReply{Job: &pb.JobRecord{Id: 9, Spec: &pb.JobSpec{Name: "x"}, State: pb.JobState_JOB_TIMEOUT, ExitStatus: 15, NodeList: "n1"}})
	if state, status, err := JobEnd(b); state != int32(pb.JobState_JOB_TIMEOUT) || status != 15 || err != nil {
		t.Errorf("JobEnd = %d, %d, %v", state, status, err)
	}
	b, _ = proto.Marshal(&pb.NodesReply{Nodes: []*pb.NodeRecord{{Name: "a"}, {Name: "b", Gres: "gpu:a100:2"}}})
	var seen []string
	if err := NodeGres(b, func(g string) { seen = append(seen, g) }); err != nil || len(seen) != 1 || seen[0] != "gpu:a100:2" {
		t.Errorf("NodeGres gave %q, %v", seen, err)
	}
}

func TestStatusCarriesTheProblem(t *testing.T) {
	want := pb.NewProblem(pb.CodeInvalidJobID, "job 12").WithHint("squeue")
	detail, err := anypb.New(want)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := proto.Marshal(&spb.Status{Code: 3, Message: "m", Details: []*anypb.Any{detail}})
	code, text, got, err := Status(b)
	if err != nil || code != 3 || text != "m" || got == nil || got.Code != want.Code || got.Phrase != want.Phrase || got.Detail != want.Detail || got.Hint != want.Hint {
		t.Errorf("Status = %d, %q, %+v, %v", code, text, got, err)
	}
}

func TestWaitJobAndChunk(t *testing.T) {
	var wait pb.WaitJobRequest
	if err := proto.Unmarshal(AppendWaitJob(nil, 77), &wait); err != nil || wait.JobId != 77 {
		t.Errorf("WaitJobRequest %v, %v", &wait, err)
	}
	var chunk pb.SubmitChunk
	if err := proto.Unmarshal(AppendChunk(nil, []byte("abc")), &chunk); err != nil || string(chunk.Data) != "abc" {
		t.Errorf("SubmitChunk %v, %v", &chunk, err)
	}
}

func FuzzFields(f *testing.F) {
	f.Add([]byte{0x0a, 0x01, 'x'})
	f.Add([]byte{0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Add([]byte{0x09, 1, 2, 3})
	f.Fuzz(func(t *testing.T, b []byte) {
		total := 0
		err := Fields(b, func(_ int, _ uint64, v []byte) { total += len(v) })
		if total > len(b) {
			t.Errorf("%d bytes of fields in %d bytes, %v", total, len(b), err)
		}
		_, _, _ = JobEnd(b)
		_, _, _, _ = Status(b)
		_, _, _ = Call(b)
		_, _ = Reply(b)
	})
}

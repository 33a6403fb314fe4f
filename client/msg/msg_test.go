package msg

import (
	"bytes"
	"math"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

type message interface {
	Message
	Marshal() []byte
	Unmarshal([]byte) error
}

var deterministic = proto.MarshalOptions{Deterministic: true}

// Every message, with any of its fields set to anything: the same bytes as protobuf's library, and the same message back.
func TestAnyMessageIsCodedAsProtobufDoes(t *testing.T) {
	for _, m := range messages {
		mine, theirs := reflect.TypeOf(m.plain()).Elem(), reflect.TypeOf(m.library()).Elem()
		for i := range mine.NumField() {
			if _, ok := theirs.FieldByName(mine.Field(i).Name); !ok {
				t.Fatalf("%s.%s is not in the messages: run make generate", mine.Name(), mine.Field(i).Name)
			}
		}
		t.Run(mine.Name(), rapid.MakeCheck(func(t *rapid.T) {
			want := m.library()
			fill(t, want.ProtoReflect())
			plain := m.plain()
			copyFields(reflect.ValueOf(plain).Elem(), reflect.ValueOf(want).Elem())
			data, err := deterministic.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			if got := plain.Marshal(); !bytes.Equal(got, data) {
				t.Fatalf("encoded as %x, protobuf gives %x", got, data)
			}
			again, back := m.plain(), m.library()
			if err := again.Unmarshal(data); err != nil {
				t.Fatal(err)
			}
			copyFields(reflect.ValueOf(back).Elem(), reflect.ValueOf(again).Elem())
			if !proto.Equal(back, want) {
				t.Fatalf("decoded as %v, want %v", back, want)
			}
			getters(t, plain)
		}))
	}
}

func fill(t *rapid.T, m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if rapid.IntRange(0, 3).Draw(t, string(f.Name())) > 0 {
			continue
		}
		switch {
		case f.IsMap():
			for range rapid.IntRange(0, 3).Draw(t, "entries") {
				m.Mutable(f).Map().Set(protoreflect.ValueOfString(rapid.String().Draw(t, "key")).MapKey(), value(t, f.MapValue()))
			}
		case f.IsList():
			for range rapid.IntRange(0, 3).Draw(t, "elements") {
				if f.Message() != nil {
					fill(t, m.Mutable(f).List().AppendMutable().Message())
				} else {
					m.Mutable(f).List().Append(value(t, f))
				}
			}
		case f.Message() != nil:
			fill(t, m.Mutable(f).Message())
		default:
			m.Set(f, value(t, f))
		}
	}
}

func value(t *rapid.T, f protoreflect.FieldDescriptor) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(rapid.OneOf(rapid.String(), rapid.Just(strings.Repeat("é", 200))).Draw(t, "string"))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(rapid.Bool().Draw(t, "bool"))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(rapid.Uint32().Draw(t, "uint32"))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(rapid.Uint64().Draw(t, "uint64"))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(rapid.Int64().Draw(t, "int64"))
	case protoreflect.Sint32Kind:
		return protoreflect.ValueOfInt32(rapid.Int32().Draw(t, "sint32"))
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(rapid.Int32().Draw(t, "enum")))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(rapid.OneOf(rapid.Float64(), rapid.Just(math.Copysign(0, -1)), rapid.Just(math.NaN())).Draw(t,
			"double"))
	}
	panic("no value for " + f.Kind().String())
}

// copyFields copies a message into the one of the other package, field by field.
func copyFields(to, from reflect.Value) {
	for i := range to.NumField() {
		if f := to.Type().Field(i); f.IsExported() {
			copyValue(to.Field(i), from.FieldByName(f.Name))
		}
	}
}

func copyValue(to, from reflect.Value) {
	switch {
	case to.Kind() == reflect.Pointer && !from.IsNil():
		to.Set(reflect.New(to.Type().Elem()))
		copyFields(to.Elem(), from.Elem())
	case to.Kind() == reflect.Slice:
		for i := range from.Len() {
			to.Set(reflect.Append(to, reflect.Zero(to.Type().Elem())))
			copyValue(to.Index(i), from.Index(i))
		}
	case to.Kind() != reflect.Pointer:
		to.Set(from.Convert(to.Type()))
	}
}

// getters gives every field by its getter too, and zero of no message.
func getters(t *rapid.T, m message) {
	v := reflect.ValueOf(m)
	for i := range v.Elem().NumField() {
		get := "Get" + v.Elem().Type().Field(i).Name
		got, want := v.MethodByName(get).Call(nil)[0], v.Elem().Field(i)
		if want.Comparable() && !want.Equal(got) && !(want.CanFloat() && math.IsNaN(want.Float())) {
			t.Fatalf("%s() = %v, the field is %v", get, got, want)
		}
		if none := reflect.Zero(v.Type()).MethodByName(get).Call(nil)[0]; !none.IsZero() {
			t.Fatalf("%s() of no message = %v", get, none)
		}
	}
}

// TestTheSameNames: what a message has in one package it has in the other.
func TestTheSameNames(t *testing.T) {
	for _, m := range messages {
		plain, library := reflect.TypeOf(m.plain()), reflect.TypeOf(m.library())
		for i := range library.NumMethod() {
			name := library.Method(i).Name
			if _, ok := plain.MethodByName(name); !ok && strings.HasPrefix(name, "Get") {
				t.Errorf("%v has no %s", plain, name)
			}
		}
	}
	for v := range JobState_name {
		if got, want := JobState(v).String(), pb.JobState(v).String(); got != want {
			t.Errorf("JobState %d is %q, in the messages %q", v, got, want)
		}
	}
	if len(JobState_name) != len(pb.JobState_name) || len(NodeState_name) != len(pb.NodeState_name) {
		t.Error("an enumeration has other values than in the messages")
	}
	if got := JobState(99).String(); got != "99" {
		t.Errorf("an unknown state is %q", got)
	}
	want := pb.NewProblem(pb.CodeInvalidJobID, "job %d", 3).WithHint("squeue lists them").Error()
	if got := NewProblem(CodeInvalidJobID, "job %d", 3).WithHint("squeue lists them").Error(); got != want {
		t.Errorf("a problem reads %q, that of the messages %q", got, want)
	}
}

// FuzzUnmarshal: protobuf's library accepts the same bytes, and reads the same out of them.
func FuzzUnmarshal(f *testing.F) {
	for i, m := range messages {
		one := m.library()
		for range 3 {
			data, _ := deterministic.Marshal(one)
			f.Add(uint8(i), data)
			set(one.ProtoReflect())
		}
	}
	for _, damaged := range []string{"\x0a\xff", "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", "\x0a\x02\xff\xfe", "\x00", "\x0c",
		"\x0b\x0c", "\x0b\x14", "\x0b\x0b\x0c\x0c\x08\x01", "\x0e", "\x0f",
		"\x0d\x01\x02\x03\x04", "\x09\x01", "\xfa\x3f\x01x", "\x80\x80\x80\x80\x10\x01", "\x12\x02\x80\x01\x10\x05", "\x12\x00",
		"\x0a\x05\x0a\x01k\x11\x00", "\x88\x80\x00\x05"} {
		for i := range messages {
			f.Add(uint8(i), []byte(damaged))
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, data []byte) {
		m := messages[int(which)%len(messages)]
		want, plain, got := m.library(), m.plain(), m.library()
		wantErr := proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, want)
		err := plain.Unmarshal(data)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%T %x: %v, protobuf says %v", plain, data, err, wantErr)
		}
		if err != nil {
			return
		}
		copyFields(reflect.ValueOf(got).Elem(), reflect.ValueOf(plain).Elem())
		if !proto.Equal(got, want) {
			t.Fatalf("%T %x is %v, protobuf says %v", plain, data, got, want)
		}
	})
}

// set sets every field, one more element in lists each time. A list of messages of the same type stays empty.
func set(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		switch f := fields.Get(i); {
		case f.IsMap():
			m.Mutable(f).Map().Set(protoreflect.ValueOfString("k").MapKey(), protoreflect.ValueOfFloat64(1.5))
		case f.Message() == m.Descriptor() && f.Message() != nil:
		case f.IsList() && f.Message() != nil:
			set(m.Mutable(f).List().AppendMutable().Message())
		case f.IsList() && f.Kind() == protoreflect.StringKind:
			m.Mutable(f).List().Append(protoreflect.ValueOfString("é"))
		case f.IsList() && f.Kind() == protoreflect.EnumKind:
			m.Mutable(f).List().Append(protoreflect.ValueOfEnum(2))
		case f.IsList():
			m.Mutable(f).List().Append(protoreflect.ValueOfUint32(300))
		case f.Message() != nil:
			set(m.Mutable(f).Message())
		case f.Kind() == protoreflect.StringKind:
			m.Set(f, protoreflect.ValueOfString("text"))
		case f.Kind() == protoreflect.Uint32Kind:
			m.Set(f, protoreflect.ValueOfUint32(math.MaxUint32))
		case f.Kind() == protoreflect.Int64Kind:
			m.Set(f, protoreflect.ValueOfInt64(-1))
		case f.Kind() == protoreflect.EnumKind:
			m.Set(f, protoreflect.ValueOfEnum(-1))
		}
	}
}

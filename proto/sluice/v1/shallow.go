package pb

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// ShallowCopy copies the set fields of a message, including unknown ones, into a new one. Nested lists and messages are shared,
// which is safe because records are immutable. The most frequently copied records have a faster Shallow of their own
// (encode.gen.go).
func ShallowCopy[M proto.Message](src M) M {
	dst := src.ProtoReflect().New()
	src.ProtoReflect().Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		dst.Set(fd, v)
		return true
	})
	dst.SetUnknown(src.ProtoReflect().GetUnknown())
	return dst.Interface().(M)
}

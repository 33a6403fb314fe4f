package pb

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// ShallowCopy copies the set fields of a message into a new one, and those that this release does not know; lists and messages inside are
// shared, as immutable records allow. The records that are copied most often have a faster Shallow of their own (encode.gen.go).
func ShallowCopy[M proto.Message](src M) M {
	dst := src.ProtoReflect().New()
	src.ProtoReflect().Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		dst.Set(fd, v)
		return true
	})
	dst.SetUnknown(src.ProtoReflect().GetUnknown())
	return dst.Interface().(M)
}

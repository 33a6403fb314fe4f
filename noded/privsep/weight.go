package privsep

import (
	"errors"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Limits of the memory that requests take in noded-root, by Weight. The largest batch job that can be submitted, with a script of
// 4 MiB and an environment of 1 MiB, weighs some 12 MiB.
const (
	MaxWeight = 48 << 20 // one request: twice the prolog of a job with 10,000 nodes of eight GPUs each
	Large     = 64 << 10 // a heavier request counts against LargeUnderWay
	// LargeUnderWay bounds the weight of all large requests under way; noded-link delays the next one. noded-root closes a
	// connection beyond MostUnderWay rather than stop reading: the request to end a step must not wait behind launches that a
	// disk blocks.
	LargeUnderWay = 64 << 20
	MostUnderWay  = 96 << 20
)

// maxDepth bounds the nesting of messages; ours are less than ten deep.
const maxDepth = 32

var errEncoding = errors.New("it is no message, or of no known kind")

// Weight returns an upper bound, in bytes, for the memory that a message takes once decoded: a small message may hold a million
// entries. It decodes nothing.
func Weight(md protoreflect.MessageDescriptor, b []byte) (int64, error) { return weigh(md, b, 0) }

func weigh(md protoreflect.MessageDescriptor, b []byte, depth int) (sum int64, err error) {
	if depth > maxDepth {
		return 0, errEncoding
	}
	fields := md.Fields()
	sum = structOf(md)
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return 0, errEncoding
		}
		b = b[n:]
		size := protowire.ConsumeFieldValue(num, typ, b)
		if size < 0 {
			return 0, errEncoding
		}
		f := fields.ByNumber(num)
		switch {
		case f == nil: // kept as it is
			sum += 2 * int64(n+size)
		case typ == protowire.BytesType:
			v, _ := protowire.ConsumeBytes(b)
			part, err := weighBytes(f, v, depth)
			if err != nil {
				return 0, err
			}
			sum += part
		case f.IsList():
			sum += 2 * 8 // a slice that grows has up to twice the room
		}
		b = b[size:]
	}
	return sum, nil
}

// structs caches the sizes of messages without what their fields refer to.
var structs sync.Map // protoreflect.FullName: int64

func structOf(md protoreflect.MessageDescriptor) int64 {
	if n, ok := structs.Load(md.FullName()); ok {
		return n.(int64)
	}
	n := int64(64)
	for i := range md.Fields().Len() {
		switch f := md.Fields().Get(i); {
		case f.IsList(), f.Kind() == protoreflect.BytesKind:
			n += 24
		case f.Kind() == protoreflect.StringKind:
			n += 16
		default:
			n += 8
		}
	}
	n += n / 4 // the allocator rounds sizes up
	structs.Store(md.FullName(), n)
	return n
}

// weighBytes weighs a length-delimited value.
func weighBytes(f protoreflect.FieldDescriptor, v []byte, depth int) (int64, error) {
	switch {
	case f.Message() != nil:
		n, err := weigh(f.Message(), v, depth+1)
		return n + 2*8, err
	case f.Kind() == protoreflect.StringKind, f.Kind() == protoreflect.BytesKind:
		return int64(len(v)) + 16 + 2*24, nil // its data, and its place in a list
	}
	return 16 * int64(len(v)), nil // numbers, packed: one byte may be one
}

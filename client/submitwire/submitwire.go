// Package submitwire encodes a submission and decodes its answer without protobuf's reflection.
//
// A process that submits one job spends more on setting up the reflection of JobSpec's hundred fields than on everything
// else it does: about a third of the CPU time of an sbatch. The bytes are those of proto.Marshal with fields in order; a
// test compares the two field by field, and the generator has to be run again when the messages change (go generate).
package submitwire

//go:generate go run ./gen

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// AppendRequest appends the encoding of a request. Strings are not checked to be UTF-8; the controller does that.
func AppendRequest(b []byte, m *pb.SubmitRequest) []byte { return appendSubmitRequest(b, m) }

// Reply decodes an answer; fields that are not known are skipped.
func Reply(b []byte, m *pb.SubmitReply) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("cannot decode the answer to a submission: %w", protowire.ParseError(n))
		}
		b = b[n:]
		size := protowire.ConsumeFieldValue(num, typ, b)
		if size < 0 {
			return fmt.Errorf("cannot decode the answer to a submission: %w", protowire.ParseError(size))
		}
		switch typ {
		case protowire.VarintType:
			v, _ := protowire.ConsumeVarint(b)
			setSubmitReply(m, int32(num), v, nil)
		case protowire.BytesType:
			v, _ := protowire.ConsumeBytes(b)
			setSubmitReply(m, int32(num), 0, v)
		}
		b = b[size:]
	}
	return nil
}

func tag(b []byte, num protowire.Number, typ protowire.Type) []byte {
	return protowire.AppendTag(b, num, typ)
}

func text(b []byte, num protowire.Number, v string) []byte {
	if v == "" {
		return b
	}
	return element(b, num, v)
}

func element(b []byte, num protowire.Number, v string) []byte {
	return protowire.AppendString(tag(b, num, protowire.BytesType), v)
}

func data(b []byte, num protowire.Number, v []byte) []byte {
	if len(v) == 0 {
		return b
	}
	return message(b, num, v)
}

func message(b []byte, num protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(tag(b, num, protowire.BytesType), v)
}

func number(b []byte, num protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(tag(b, num, protowire.VarintType), v)
}

func signed(b []byte, num protowire.Number, v int64) []byte {
	return number(b, num, protowire.EncodeZigZag(v))
}

func flag(b []byte, num protowire.Number, v bool) []byte {
	if !v {
		return b
	}
	return number(b, num, 1)
}

func packed(b []byte, num protowire.Number, values []uint32) []byte {
	if len(values) == 0 {
		return b
	}
	var inner []byte
	for _, v := range values {
		inner = protowire.AppendVarint(inner, uint64(v))
	}
	return message(b, num, inner)
}

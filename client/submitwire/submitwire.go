// Package submitwire holds the messages of a submission as plain structs, and moves them to and from protobuf's encoding
// without protobuf's library.
//
// An sbatch lives for two milliseconds. Linking the library and registering the generated messages costs a third of its CPU
// time before main begins, and the reflection of JobSpec's hundred fields as much again. The structs and their encoding are
// generated from the messages (go generate); a test compares every field with what proto.Marshal gives, so that a field
// added to the messages without running the generator fails there.
package submitwire

//go:generate go run ./gen

import (
	"encoding/binary"
	"errors"
)

// Wire types of protobuf's encoding that the messages use.
const (
	varint = 0
	fixed8 = 1
	chunk  = 2
	fixed4 = 5
)

// AppendRequest appends the encoding of a request. Strings are not checked to be UTF-8; the controller does that.
func AppendRequest(b []byte, m *SubmitRequest) []byte { return appendSubmitRequest(b, m) }

// AppendChunk appends a SubmitChunk that holds a piece of an encoded request.
func AppendChunk(b, piece []byte) []byte { return data(b, 1, piece) }

// AppendWaitJob appends a WaitJobRequest.
func AppendWaitJob(b []byte, job uint32) []byte { return number(b, 1, uint64(job)) }

// AppendCall appends a ttrpc.Request: service, method, payload and the time left in nanoseconds (0: no limit).
func AppendCall(b []byte, service, method string, payload []byte, timeoutNS int64) []byte {
	b = message(text(text(b, 1, service), 2, method), 3, payload)
	return number(b, 4, uint64(max(0, timeoutNS)))
}

// Call takes a ttrpc.Response apart: the encoded google.rpc.Status, empty for success, and the payload.
func Call(b []byte) (status, payload []byte, err error) {
	err = Fields(b, func(num int, _ uint64, v []byte) {
		switch num {
		case 1:
			status = v
		case 2:
			payload = v
		}
	})
	return status, payload, err
}

// Status decodes a google.rpc.Status; problem is nil when it carries none.
func Status(b []byte) (code int32, text string, problem *Problem, err error) {
	err = Fields(b, func(num int, n uint64, v []byte) {
		switch num {
		case 1:
			code = int32(n)
		case 2:
			text = string(v)
		case 3:
			if p := problemIn(v); p != nil {
				problem = p
			}
		}
	})
	return code, text, problem, err
}

// problemIn decodes a google.protobuf.Any that holds a Problem.
func problemIn(b []byte) *Problem {
	const suffix = "/sluice.v1.Problem"
	var url string
	var value []byte
	err := Fields(b, func(num int, _ uint64, v []byte) {
		switch num {
		case 1:
			url = string(v)
		case 2:
			value = v
		}
	})
	if err != nil || len(url) < len(suffix) || url[len(url)-len(suffix):] != suffix {
		return nil
	}
	p := &Problem{}
	if Fields(value, func(num int, n uint64, v []byte) { setProblem(p, num, n, v) }) != nil {
		return nil
	}
	return p
}

// Reply decodes the answer to a submission; fields that are not known are skipped.
func Reply(b []byte) (*SubmitReply, error) {
	m := &SubmitReply{}
	return m, Fields(b, func(num int, n uint64, v []byte) { setSubmitReply(m, num, n, v) })
}

// JobEnd takes state and wait status out of a WaitJobReply.
func JobEnd(b []byte) (state int32, waitStatus uint32, err error) {
	var job []byte
	if err := Fields(b, func(num int, _ uint64, v []byte) {
		if num == 1 {
			job = v
		}
	}); err != nil {
		return 0, 0, err
	}
	err = Fields(job, func(num int, n uint64, _ []byte) {
		switch num {
		case jobRecordState:
			state = int32(n)
		case jobRecordExitStatus:
			waitStatus = uint32(n)
		}
	})
	return state, waitStatus, err
}

// NodeGres takes the configured generic resources of each node out of a NodesReply.
func NodeGres(b []byte, each func(gres string)) error {
	var inner error
	err := Fields(b, func(num int, _ uint64, v []byte) {
		if num != 1 {
			return
		}
		if err := Fields(v, func(num int, _ uint64, v []byte) {
			if num == nodeRecordGres {
				each(string(v))
			}
		}); err != nil {
			inner = err
		}
	})
	return errors.Join(err, inner)
}

// Numbers of the fields that are read out of longer messages.
const (
	jobRecordState      = 3
	jobRecordExitStatus = 23
	nodeRecordGres      = 32
)

var errCut = errors.New("cannot decode the controller's answer: it is cut or damaged")

// Fields calls each with every field of a message: the number, and n or v by its kind.
func Fields(b []byte, each func(num int, n uint64, v []byte)) error {
	for len(b) > 0 {
		tag, used := binary.Uvarint(b)
		if used <= 0 || tag>>3 == 0 || tag>>3 > 1<<29 {
			return errCut
		}
		b = b[used:]
		size := 0
		switch tag & 7 {
		case varint:
			n, used := binary.Uvarint(b)
			if used <= 0 {
				return errCut
			}
			each(int(tag>>3), n, nil)
			size = used
		case chunk:
			n, used := binary.Uvarint(b)
			if used <= 0 || n > uint64(len(b)-used) {
				return errCut
			}
			size = used + int(n)
			each(int(tag>>3), 0, b[used:size])
		case fixed8:
			size = 8
		case fixed4:
			size = 4
		default:
			return errCut
		}
		if size > len(b) {
			return errCut
		}
		b = b[size:]
	}
	return nil
}

func key(b []byte, num, kind int) []byte { return binary.AppendUvarint(b, uint64(num<<3|kind)) }

func text(b []byte, num int, v string) []byte {
	if v == "" {
		return b
	}
	return element(b, num, v)
}

func element(b []byte, num int, v string) []byte {
	return append(binary.AppendUvarint(key(b, num, chunk), uint64(len(v))), v...)
}

func data(b []byte, num int, v []byte) []byte {
	if len(v) == 0 {
		return b
	}
	return message(b, num, v)
}

func message(b []byte, num int, v []byte) []byte {
	return append(binary.AppendUvarint(key(b, num, chunk), uint64(len(v))), v...)
}

func number(b []byte, num int, v uint64) []byte {
	if v == 0 {
		return b
	}
	return binary.AppendUvarint(key(b, num, varint), v)
}

// signed is the zigzag encoding of sint32.
func signed(b []byte, num int, v int64) []byte { return number(b, num, uint64(v<<1)^uint64(v>>63)) }

func flag(b []byte, num int, v bool) []byte {
	if !v {
		return b
	}
	return number(b, num, 1)
}

func packed(b []byte, num int, values []uint32) []byte {
	if len(values) == 0 {
		return b
	}
	var inner []byte
	for _, v := range values {
		inner = binary.AppendUvarint(inner, uint64(v))
	}
	return message(b, num, inner)
}

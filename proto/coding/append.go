// Package coding is protobuf's wire encoding, limited to the types that messages of ControllerAPI use.
//
// A command lives for two milliseconds. Linking protobuf's library and registering the generated messages costs as much CPU as the
// command itself before main begins, so commands use plain structs (client/msg) whose generated methods call this package. Tests
// compare both with the library.
package coding

import (
	"encoding/binary"
	"math"
	"slices"
)

// Wire types of protobuf's encoding.
const (
	Varint  = 0
	Fixed64 = 1
	Chunk   = 2 // a length and that many bytes: strings, bytes, messages, packed lists
	group   = 3
	endOf   = 4
	fixed32 = 5
)

func key(b []byte, num, kind int) []byte { return binary.AppendUvarint(b, uint64(num)<<3|uint64(kind)) }

// AppendText appends a string. Like all singular fields it is omitted if empty. It need not be UTF-8.
func AppendText(b []byte, num int, v string) []byte {
	if v == "" {
		return b
	}
	return AppendElement(b, num, v)
}

// AppendElement appends one string of a list, empty or not.
func AppendElement(b []byte, num int, v string) []byte {
	return append(binary.AppendUvarint(key(b, num, Chunk), uint64(len(v))), v...)
}

// AppendBytes appends bytes.
func AppendBytes(b []byte, num int, v []byte) []byte {
	if len(v) == 0 {
		return b
	}
	return append(binary.AppendUvarint(key(b, num, Chunk), uint64(len(v))), v...)
}

// AppendNumber appends an integer of any size or an enumeration; a signed one is converted to uint64, which extends its sign.
func AppendNumber(b []byte, num int, v uint64) []byte {
	if v == 0 {
		return b
	}
	return binary.AppendUvarint(key(b, num, Varint), v)
}

// AppendSigned appends a sint32: zigzag encoded.
func AppendSigned(b []byte, num int, v int32) []byte {
	return AppendNumber(b, num, uint64(uint32(v<<1)^uint32(v>>31)))
}

// AppendBool appends a bool.
func AppendBool(b []byte, num int, v bool) []byte {
	if !v {
		return b
	}
	return AppendNumber(b, num, 1)
}

// AppendDouble appends a double; only +0 is omitted.
func AppendDouble(b []byte, num int, v float64) []byte {
	if math.Float64bits(v) == 0 {
		return b
	}
	return appendDouble(b, num, v)
}

func appendDouble(b []byte, num int, v float64) []byte {
	return binary.LittleEndian.AppendUint64(key(b, num, Fixed64), math.Float64bits(v))
}

// AppendPacked appends a list of integers or enumerations in one chunk.
func AppendPacked[T ~int32 | ~uint32](b []byte, num int, list []T) []byte {
	if len(list) == 0 {
		return b
	}
	b, at := Open(b, num)
	for _, v := range list {
		b = binary.AppendUvarint(b, uint64(v))
	}
	return Close(b, at)
}

// AppendMap appends a map<string, double>, in the order of its keys.
func AppendMap(b []byte, num int, m map[string]float64) []byte {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		at := 0
		b, at = Open(b, num)
		b = Close(appendDouble(AppendElement(b, 1, k), 2, m[k]), at)
	}
	return b
}

// Open begins a chunk whose length is not known yet; pass at to Close.
func Open(b []byte, num int) (_ []byte, at int) {
	b = append(key(b, num, Chunk), 0)
	return b, len(b) - 1
}

// Close ends the chunk that Open began at at. Most are shorter than 128 bytes and keep the single byte that Open reserved for the
// length; others are moved to make room.
func Close(b []byte, at int) []byte {
	n := len(b) - at - 1
	if n < 0x80 {
		b[at] = byte(n)
		return b
	}
	var length [binary.MaxVarintLen64]byte
	used := binary.PutUvarint(length[:], uint64(n))
	b = append(b, length[1:used]...)
	copy(b[at+used:], b[at+1:at+1+n])
	copy(b[at:], length[:used])
	return b
}

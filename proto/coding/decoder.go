package coding

import (
	"errors"
	"math"
)

const (
	maxField      = 1<<29 - 1
	maxGroupField = math.MaxInt32
	maxGroupDepth = 10000 // protobuf's own limit
)

var errDamaged = errors.New("cannot decode a message: it is cut or damaged")

// Decoder iterates over the fields of an encoded message:
//
//	for d := coding.NewDecoder(s); d.Next(); {
//		switch d.Tag { … }
//	}
//
// It reads a string, so that decoded strings are slices of it: a page of a thousand jobs is one allocation instead of one per name.
// The price is that keeping one of these strings keeps the whole message.
type Decoder struct {
	Tag uint64 // number of the field <<3 | its wire type
	num uint64 // value of a field that is not a Chunk
	// Data is the value of a Chunk.
	Data string

	rest string
	err  error
}

// NewDecoder starts before the first field of s.
func NewDecoder(s string) *Decoder { return &Decoder{rest: s} }

// Next advances to the next field. It returns false at the end, and if the message is malformed; then Err returns the error.
// Unwanted fields need no call: the next Next skips them.
func (d *Decoder) Next() bool {
	if d.err != nil || d.rest == "" {
		return false
	}
	tag, ok := d.varint()
	if num := tag >> 3; !ok || num == 0 || num > maxField {
		d.err = errDamaged
		return false
	}
	d.Tag = tag
	if !d.value(int(tag&7), tag>>3, maxGroupDepth) {
		d.err = errDamaged
		return false
	}
	return true
}

// value reads the value of a field; the content of a group is skipped.
func (d *Decoder) value(kind int, num uint64, depth int) (ok bool) {
	switch kind {
	case Varint:
		d.num, ok = d.varint()
	case Chunk:
		n, have := d.varint()
		if ok = have && n <= uint64(len(d.rest)); ok {
			d.Data, d.rest = d.rest[:n], d.rest[n:]
		}
	case Fixed64:
		ok = d.fixed(8)
	case fixed32:
		ok = d.fixed(4)
	case group:
		ok = d.skipGroup(num, depth)
	}
	return ok
}

func (d *Decoder) skipGroup(num uint64, depth int) bool {
	if depth < 0 {
		return false
	}
	for {
		tag, ok := d.varint()
		if !ok || tag>>3 == 0 || tag>>3 > maxGroupField {
			return false
		}
		if tag&7 == endOf {
			return tag>>3 == num
		}
		if !d.value(int(tag&7), tag>>3, depth-1) {
			return false
		}
	}
}

func (d *Decoder) varint() (v uint64, ok bool) {
	for i := 0; i < len(d.rest) && i < 10; i++ {
		c := d.rest[i]
		if i == 9 && c > 1 {
			return 0, false // more than 64 bits
		}
		v |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			d.rest = d.rest[i+1:]
			return v, true
		}
	}
	return 0, false
}

func (d *Decoder) fixed(bytes int) bool {
	if len(d.rest) < bytes {
		return false
	}
	d.num = 0
	for i := range bytes {
		d.num |= uint64(d.rest[i]) << (8 * i)
	}
	d.rest = d.rest[bytes:]
	return true
}

// Err returns why Next stopped before the end of the message.
func (d *Decoder) Err() error { return d.err }

// Fail stops decoding with err, unless it is nil.
func (d *Decoder) Fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

// Text returns the value of a string field, which need not be UTF-8.
func (d *Decoder) Text() string { return d.Data }

// Bytes returns a copy of the value of a bytes field.
func (d *Decoder) Bytes() []byte { return []byte(d.Data) }

// Number returns the value of an integer or an enumeration; the caller converts it to the field's size.
func (d *Decoder) Number() uint64 { return d.num }

// Signed returns the value of a sint32.
func (d *Decoder) Signed() int32 {
	v := uint32(d.num)
	return int32(v>>1) ^ -int32(v&1)
}

// Bool returns the value of a bool.
func (d *Decoder) Bool() bool { return d.num != 0 }

// Double returns the value of a double.
func (d *Decoder) Double() float64 { return math.Float64frombits(d.num) }

// Packed appends the integers of a packed list to list.
func Packed[T ~int32 | ~uint32](d *Decoder, list []T) []T {
	inner := Decoder{rest: d.Data}
	for inner.rest != "" {
		v, ok := inner.varint()
		if !ok {
			d.Fail(errDamaged)
			break
		}
		list = append(list, T(v))
	}
	return list
}

// Entry returns an entry of a map<string, double>.
func (d *Decoder) Entry() (key string, value float64) {
	inner := Decoder{rest: d.Data}
	for inner.Next() {
		switch inner.Tag {
		case 1<<3 | Chunk:
			key = inner.Text()
		case 2<<3 | Fixed64:
			value = inner.Double()
		}
	}
	d.Fail(inner.err)
	return key, value
}

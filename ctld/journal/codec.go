package journal

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// A stored value is: version (1 byte), CRC32C (4 bytes, little-endian) over version, bucket, length of key, key and value; value.
const (
	valueVersion = 1
	valueHeader  = 5
)

var (
	castagnoli  = crc32.MakeTable(crc32.Castagnoli)
	errChecksum = errors.New("checksum mismatch")
	errVersion  = errors.New("unknown version of the encoding")
	errShort    = errors.New("value cut short")
)

func compareRows(a, b Row) int {
	if c := cmp.Compare(a.Bucket, b.Bucket); c != 0 {
		return c
	}
	return bytes.Compare(a.Key, b.Key)
}

func checksum(b Bucket, key, value []byte) uint32 {
	var h [4]byte
	h[0], h[1] = valueVersion, byte(b)
	binary.LittleEndian.PutUint16(h[2:], uint16(len(key)))
	c := crc32.Update(0, castagnoli, h[:])
	c = crc32.Update(c, castagnoli, key)
	return crc32.Update(c, castagnoli, value)
}

// seal encodes a value for storage and returns the digest of its row.
func seal(b Bucket, key, value []byte) (stored []byte, digest uint64) {
	c := checksum(b, key, value)
	stored = make([]byte, valueHeader+len(value))
	stored[0] = valueVersion
	binary.LittleEndian.PutUint32(stored[1:], c)
	copy(stored[valueHeader:], value)
	return stored, mix(b, c)
}

// unseal checks a stored value and returns the caller's part, and the digest of its row.
func unseal(b Bucket, key, stored []byte) (value []byte, digest uint64, err error) {
	if len(stored) < valueHeader {
		return nil, 0, errShort
	}
	value = stored[valueHeader:]
	c := binary.LittleEndian.Uint32(stored[1:])
	switch {
	case stored[0] != valueVersion && c == checksum(b, key, value): // the sum assumes version 1, so the version byte was damaged
		return nil, 0, errChecksum
	case stored[0] != valueVersion:
		return nil, 0, errVersion
	case c != checksum(b, key, value):
		return nil, 0, errChecksum
	}
	return value, mix(b, c), nil
}

// storedDigest is the digest of a row whose value is about to be replaced; it was checked when it was loaded.
func storedDigest(b Bucket, stored []byte) (uint64, error) {
	if len(stored) < valueHeader {
		return 0, errShort
	}
	return mix(b, binary.LittleEndian.Uint32(stored[1:])), nil
}

// mix spreads a checksum over 64 bits (the finaliser of splitmix64), so that sums of digests tell sets of rows apart.
func mix(b Bucket, c uint32) uint64 {
	z := (uint64(b)<<32 | uint64(c)) + 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// tally is the head's account of a bucket: the number of rows, and the sum of their digests modulo 2^64.
type tally struct{ rows, sum uint64 }

// head is the record that every commit rewrites.
type head struct {
	cluster string // 32 hexadecimal digits
	schema  uint32 // of the values, as Options.Schema counts them
	seq     uint64
	epoch   uint64
	// timeline is the epoch of the last restore: redo records of another timeline do not continue this state.
	timeline   uint64
	generation uint64 // raised by every restore
	lost       []Span // commits that restores took back, oldest first; at most mostSpans
	floor      uint32 // ids up to this one may be in use
	tally      [lastBucket + 1]tally
	newer      int // empty buckets of a newer version; not encoded
}

const (
	headVersion = 1
	clusterLen  = 32
	headFixed   = 1 + clusterLen + 4 + 8 + 8 + 8 + 8 + 4 + 1 + 1
	spanLen     = 8 + 8
	tallyLen    = 1 + 8 + 8
)

func (h *head) encode() []byte {
	b := make([]byte, 0, headFixed+len(h.tally)*tallyLen)
	b = append(b, headVersion)
	b = append(b, h.cluster...)
	b = binary.LittleEndian.AppendUint32(b, h.schema)
	b = binary.LittleEndian.AppendUint64(b, h.seq)
	b = binary.LittleEndian.AppendUint64(b, h.epoch)
	b = binary.LittleEndian.AppendUint64(b, h.timeline)
	b = binary.LittleEndian.AppendUint64(b, h.generation)
	b = binary.LittleEndian.AppendUint32(b, h.floor)
	b = append(b, byte(len(h.lost)))
	for _, s := range h.lost {
		b = binary.LittleEndian.AppendUint64(b, s.After)
		b = binary.LittleEndian.AppendUint64(b, s.UpTo)
	}
	b = append(b, byte(lastBucket))
	for i := Bucket(1); i <= lastBucket; i++ {
		b = append(b, byte(i))
		b = binary.LittleEndian.AppendUint64(b, h.tally[i].rows)
		b = binary.LittleEndian.AppendUint64(b, h.tally[i].sum)
	}
	return b
}

func decodeHead(b []byte) (*head, error) {
	if len(b) < headFixed {
		return nil, errShort
	}
	if b[0] != headVersion {
		return nil, fmt.Errorf("its head has version %d, this program reads %d: %w", b[0], headVersion, ErrNewer)
	}
	h := &head{cluster: string(b[1 : 1+clusterLen])}
	p := b[1+clusterLen:]
	h.schema = binary.LittleEndian.Uint32(p)
	h.seq = binary.LittleEndian.Uint64(p[4:])
	h.epoch = binary.LittleEndian.Uint64(p[12:])
	h.timeline = binary.LittleEndian.Uint64(p[20:])
	h.generation = binary.LittleEndian.Uint64(p[28:])
	h.floor = binary.LittleEndian.Uint32(p[36:])
	n, p := int(p[40]), p[41:]
	if len(p) < n*spanLen+1 {
		return nil, errShort
	}
	for range n {
		h.lost = append(h.lost, Span{binary.LittleEndian.Uint64(p), binary.LittleEndian.Uint64(p[8:])})
		p = p[spanLen:]
	}
	n, p = int(p[0]), p[1:]
	if len(p) != n*tallyLen {
		return nil, errShort
	}
	for ; len(p) > 0; p = p[tallyLen:] {
		t := tally{binary.LittleEndian.Uint64(p[1:]), binary.LittleEndian.Uint64(p[9:])}
		if b := Bucket(p[0]); b.valid() {
			h.tally[b] = t
		} else if t.rows > 0 {
			return nil, fmt.Errorf("it has rows of a kind that this program does not know (%d): %w", p[0], ErrNewer)
		} else {
			h.newer++
		}
	}
	return h, nil
}

// replace accounts for a row that was (had) and is (has) present with the given digests.
func (t *tally) replace(old, digest uint64, had, has bool) {
	if had {
		t.rows--
		t.sum -= old
	}
	if has {
		t.rows++
		t.sum += digest
	}
}

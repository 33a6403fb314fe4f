package journal

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
)

// The parts of bbolt's file format (version 2) that must be read before bbolt may map the file. Numbers are in the byte order of the
// machine. A page is: id (8 bytes), flags (2), count (2), overflow (4), content. Pages 0 and 1 hold the meta records, written in turn.
const (
	pageHeader  = 16
	metaSize    = 64
	metaSummed  = 56
	boltMagic   = 0xED0CDAED
	boltVersion = 2
	noFreelist  = ^uint64(0)
)

var native = binary.NativeEndian

// meta is one meta record.
type meta struct {
	pageSize uint32
	root     uint64
	freelist uint64
	pages    uint64 // high-water mark: the file has pages 0 to pages-1
	txid     uint64
}

// parseMeta reads the record behind the page header, or says why it is invalid.
func parseMeta(page []byte) (meta, error) {
	b := page[pageHeader : pageHeader+metaSize]
	sum := fnv.New64a()
	sum.Write(b[:metaSummed])
	switch {
	case native.Uint32(b) != boltMagic:
		return meta{}, fmt.Errorf("it does not begin like a bbolt file")
	case native.Uint32(b[4:]) != boltVersion:
		return meta{}, fmt.Errorf("it has bbolt format %d, expected %d", native.Uint32(b[4:]), boltVersion)
	case native.Uint64(b[metaSummed:]) != sum.Sum64():
		return meta{}, errChecksum
	}
	m := meta{pageSize: native.Uint32(b[8:]), root: native.Uint64(b[16:]), freelist: native.Uint64(b[32:]),
		pages: native.Uint64(b[40:]), txid: native.Uint64(b[48:])}
	if m.pageSize < 1<<10 || m.pageSize > 1<<16 || m.pageSize&(m.pageSize-1) != 0 {
		return meta{}, fmt.Errorf("page size %d", m.pageSize)
	}
	return m, nil
}

// encodeMeta overwrites the record in page with m and a new checksum; fields that meta does not have are kept.
func encodeMeta(page []byte, m meta) {
	b := page[pageHeader : pageHeader+metaSize]
	native.PutUint64(b[48:], m.txid)
	sum := fnv.New64a()
	sum.Write(b[:metaSummed])
	native.PutUint64(b[metaSummed:], sum.Sum64())
}

// readMetas reads both meta records of a file of size bytes and returns the newer one. Without strict, one damaged record is tolerated and
// the other returned: bad is then the number of the damaged page, otherwise -1.
func readMetas(r io.ReaderAt, size int64, strict bool) (m meta, bad int, err error) {
	var got [2]meta
	var errs [2]error
	got[0], errs[0] = metaAt(r, size, 0)
	for shift := 10; errs[0] != nil && shift <= 16; shift++ { // page size unknown: try every possible position of the second one
		if got[1], errs[1] = metaAt(r, size, 1<<shift); errs[1] == nil && got[1].pageSize == 1<<shift {
			break
		}
		errs[1] = fmt.Errorf("no second meta page")
	}
	if errs[0] == nil {
		got[1], errs[1] = metaAt(r, size, int64(got[0].pageSize))
	}
	switch {
	case errs[0] != nil && errs[1] != nil:
		return meta{}, -1, fmt.Errorf("both meta pages are damaged (%w)", errs[0])
	case errs[0] != nil:
		m, bad = got[1], 0
	case errs[1] != nil:
		m, bad = got[0], 1
	case got[0].pageSize != got[1].pageSize || got[0].txid == got[1].txid:
		return meta{}, -1, fmt.Errorf("its meta pages contradict each other")
	case got[0].txid > got[1].txid:
		m, bad = got[0], -1
	default:
		m, bad = got[1], -1
	}
	if bad >= 0 && strict {
		return meta{}, bad, fmt.Errorf("meta page %d is damaged (%w)", bad, errs[bad])
	}
	if need := int64(m.pages) * int64(m.pageSize); m.pages > 1<<40 || size < need {
		return meta{}, bad, fmt.Errorf("it is truncated: %d bytes, its meta page says %d", size, need)
	}
	return m, bad, nil
}

func metaAt(r io.ReaderAt, size, at int64) (meta, error) {
	if size < at+pageHeader+metaSize {
		return meta{}, fmt.Errorf("truncated: %d bytes", size)
	}
	var b [pageHeader + metaSize]byte
	if _, err := r.ReadAt(b[:], at); err != nil {
		return meta{}, err
	}
	return parseMeta(b[:])
}

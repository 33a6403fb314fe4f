package journal

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The redo log repeats each batch in a file beside the backups, so that a restore ends with the last commit and not with the last backup.
// It is written before the commit and never synced: it guards against damage to the database, not against a power cut, after which the
// database is sound and the log may have a gap. The next backup, soon after each start, closes the gap. The last record may be a batch that
// was not acknowledged, as may the last commit of a database.
//
// A segment begins with each opening and each backup. A record is: length of the payload (4 bytes), CRC32C of the payload (4), payload:
// timeline (8), sequence number before the batch (8), its own (8), then each row: bucket (1), 1 if it has a value (1), length of the key
// (2), length of the value (4), key, value. All numbers are little-endian.
//
// Records form a chain by their sequence numbers, within a timeline: each restore begins one, as it may go back and commit other batches
// under the same numbers. Of two records that follow the same number the later one counts: the earlier was refused, or its controller died
// before the commit.
type redo struct {
	dir   string
	f     *os.File // nil while the log is off, until the next segment
	size  int64
	limit int64
	full  func() // called once when a segment is longer than limit, or the disk nearly full, and a backup would help
	told  bool
	buf   []byte
	// looked is the segment's size at the last look at the disk; crowded is whether the disk then lacked room for a backup and reserve more
	// bytes.
	looked  int64
	crowded bool
	reserve int64
}

const (
	redoFormat = "e%08d-s%016d.log"
	redoHeader = 8
	redoShare  = 4       // for a large database the limit is this many times its size, so that backups stay a small part of all writes
	redoLook   = 8 << 20 // bytes written between two looks at the disk
	redoStop   = 2       // a segment that is longer than this many times the limit is not continued
	maxRecord  = 1 << 31
)

// begin starts a segment for the batches after seq. A failure is not fatal: without a log a restore loses more, that is all.
func (l *redo) begin(epoch, seq uint64) error {
	l.stop()
	l.size, l.told, l.looked, l.crowded = 0, false, 0, false
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(l.dir, fmt.Sprintf(redoFormat, epoch, seq)), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	l.f, l.size = f, info.Size()
	return nil
}

func (l *redo) stop() {
	if l.f != nil {
		_ = l.f.Close()
		l.f = nil
	}
}

// point is the state that a record continues.
type point struct{ timeline, seq uint64 }

// append writes a record. undo removes it, if its commit is refused.
func (l *redo) append(after point, b Batch, used int64) (undo func(), err error) {
	undo = func() {}
	if l.f == nil {
		return undo, nil
	}
	l.buf = encodeRecord(l.buf[:0], after, b)
	was := l.size
	n, err := l.f.Write(l.buf)
	l.size += int64(n)
	undo = func() { l.cut(was) }
	limit := max(l.limit, redoShare*used)
	if err != nil {
		undo()
		l.stop() // the chain has a gap: later records would be useless
		return func() {}, err
	}
	l.look(used)
	if (l.size > limit || l.crowded) && !l.told && l.full != nil {
		l.told = true
		l.full()
	}
	if l.size > redoStop*limit {
		l.stop()
		return func() {}, fmt.Errorf("a segment of the redo log has reached %d MiB", l.size>>20)
	}
	return undo, nil
}

// look notes whether the disk is about to become full: while there is still room for it, a backup makes the log short again.
func (l *redo) look(used int64) {
	if l.size-l.looked < redoLook {
		return
	}
	l.looked = l.size
	free, err := available(l.dir)
	l.crowded = err == nil && free < used+l.reserve+2*redoLook
}

func (l *redo) cut(to int64) {
	if l.f == nil {
		return
	}
	if err := l.f.Truncate(to); err != nil {
		l.stop()
		return
	}
	l.size = to
}

func encodeRecord(p []byte, after point, b Batch) []byte {
	p = append(p, make([]byte, redoHeader)...)
	p = binary.LittleEndian.AppendUint64(p, after.timeline)
	p = binary.LittleEndian.AppendUint64(p, after.seq)
	p = binary.LittleEndian.AppendUint64(p, b.Seq)
	for _, r := range b.Rows {
		has := byte(0)
		if r.Value != nil {
			has = 1
		}
		p = append(p, byte(r.Bucket), has)
		p = binary.LittleEndian.AppendUint16(p, uint16(len(r.Key)))
		p = binary.LittleEndian.AppendUint32(p, uint32(len(r.Value)))
		p = append(append(p, r.Key...), r.Value...)
	}
	binary.LittleEndian.PutUint32(p, uint32(len(p)-redoHeader))
	binary.LittleEndian.PutUint32(p[4:], crc32.Checksum(p[redoHeader:], castagnoli))
	return p
}

var errRecord = errors.New("a record of the redo log is damaged")

// decodeRecord is the inverse of encodeRecord, for a payload with a correct checksum.
func decodeRecord(p []byte) (after point, b Batch, err error) {
	if len(p) < 24 {
		return after, b, errRecord
	}
	after = point{binary.LittleEndian.Uint64(p), binary.LittleEndian.Uint64(p[8:])}
	b.Seq = binary.LittleEndian.Uint64(p[16:])
	for p = p[24:]; len(p) > 0; {
		if len(p) < 8 {
			return after, b, errRecord
		}
		r, has := Row{Bucket: Bucket(p[0])}, p[1]
		k, v := int(binary.LittleEndian.Uint16(p[2:])), int(binary.LittleEndian.Uint32(p[4:]))
		p = p[8:]
		if len(p) < k+v {
			return after, b, errRecord
		}
		r.Key = p[:k:k]
		if has == 1 {
			r.Value = p[k : k+v : k+v]
		}
		b.Rows, p = append(b.Rows, r), p[k+v:]
	}
	if err := b.check(after.seq); err != nil {
		return after, b, fmt.Errorf("%w: %w", errRecord, err)
	}
	return after, b, nil
}

// redoFiles lists the segments by name, oldest first.
func redoFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(backupDir(dir))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot list the redo log: %w", err)
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "e") && strings.HasSuffix(e.Name(), ".log") {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// record is the position of a record, and its place in the chain.
type record struct {
	path   string
	at     int64 // offset of the payload
	length uint32
}

// readChain indexes all segments: which record follows which state. It reads each segment up to its first damaged record.
func readChain(dir string) (map[point]record, error) {
	names, err := redoFiles(dir)
	if err != nil {
		return nil, err
	}
	chain := map[point]record{}
	for _, n := range names {
		path := filepath.Join(backupDir(dir), n)
		err := scanSegment(path, func(at int64, payload []byte) error {
			after, _, err := decodeRecord(payload)
			if err == nil {
				chain[after] = record{path, at, uint32(len(payload))}
			}
			return err
		})
		if err != nil && !errors.Is(err, errRecord) {
			return nil, err
		}
	}
	return chain, nil
}

// scanSegment calls each with every payload until one is damaged or cut short: nothing after that can be trusted to follow.
func scanSegment(path string, each func(at int64, payload []byte) error) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("cannot read the redo log: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("cannot read the redo log: %w", err)
	}
	r := bufio.NewReaderSize(f, 1<<20)
	var payload []byte
	for at := int64(0); ; {
		var h [redoHeader]byte
		if _, err := io.ReadFull(r, h[:]); err != nil {
			return nil
		}
		n := int64(binary.LittleEndian.Uint32(h[:]))
		if at += redoHeader; n > maxRecord || at+n > info.Size() {
			return nil
		}
		payload = slices.Grow(payload[:0], int(n))[:n]
		if _, err := io.ReadFull(r, payload); err != nil || crc32.Checksum(payload, castagnoli) != binary.LittleEndian.Uint32(h[4:]) {
			return nil
		}
		if err := each(at, payload); err != nil {
			return err
		}
		at += n
	}
}

func (r record) read() (Batch, error) {
	f, err := os.Open(r.path)
	if err != nil {
		return Batch{}, err
	}
	defer f.Close()
	p := make([]byte, r.length)
	if _, err := f.ReadAt(p, r.at); err != nil {
		return Batch{}, err
	}
	_, b, err := decodeRecord(p)
	return b, err
}

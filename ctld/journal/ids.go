package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
	"sync"
)

// idStride is the number of ids that one write reserves: a restore from a backup skips at most that many, and a burst of submissions pays
// one more sync in a thousand.
const idStride = 1000

// idFile is the small file beside the database that a restore does not take back: the highest id reserved, the epoch and the generation. It
// has two slots, each in a block of its own, written in turn and in place: a torn write leaves the other slot, and a full disk does not
// matter.
type idFile struct {
	mu sync.Mutex
	f  *os.File
	marks
}

// marks are the contents of a slot.
type marks struct {
	count      uint64 // of writes: the slot with the higher one is valid
	high       uint32
	epoch      uint64
	generation uint64
}

// atLeast raises each mark.
func (m *marks) atLeast(o marks) {
	m.high, m.epoch, m.generation = max(m.high, o.high), max(m.epoch, o.epoch), max(m.generation, o.generation)
}

const (
	idSlot  = 4096
	idMagic = "SLUICEID"
	idLen   = 8 + 8 + 4 + 8 + 8 // magic, count, high, epoch, generation; then a CRC32C
)

var errIDs = errors.New("the file ids is damaged")

func idPath(dir string) string { return filepath.Join(dir, "ids") }

// readIDs returns errIDs when no slot is valid, and fs.ErrNotExist when there is no file.
func readIDs(dir string) (m marks, err error) {
	f, err := os.Open(idPath(dir))
	if err != nil {
		return marks{}, err
	}
	defer f.Close()
	err = errIDs
	for slot := range int64(2) {
		var b [idLen + 4]byte
		if _, rerr := f.ReadAt(b[:], slot*idSlot); rerr != nil && rerr != io.EOF {
			return marks{}, fmt.Errorf("cannot read %s: %w", f.Name(), rerr)
		}
		ok := string(b[:8]) == idMagic && binary.LittleEndian.Uint32(b[idLen:]) == crc32.Checksum(b[:idLen], castagnoli)
		if count := binary.LittleEndian.Uint64(b[8:]); ok && count > m.count {
			m, err = marks{count, binary.LittleEndian.Uint32(b[16:]), binary.LittleEndian.Uint64(b[20:]),
				binary.LittleEndian.Uint64(b[28:])}, nil
		}
	}
	return m, err
}

// openIDs opens the file and raises its marks to those of the head. It makes the file when it is missing or damaged.
func openIDs(dir string, h *head) (*idFile, error) {
	m, err := readIDs(dir)
	if err != nil && !errors.Is(err, errIDs) && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	ids := &idFile{marks: m}
	ids.atLeast(marks{high: h.floor, epoch: h.epoch, generation: h.generation})
	if err != nil {
		if err := makeIDs(dir); err != nil {
			return nil, err
		}
	}
	if ids.f, err = os.OpenFile(idPath(dir), os.O_RDWR, 0); err != nil {
		return nil, fmt.Errorf("cannot open the file of reserved ids: %w", err)
	}
	if err := ids.write(); err != nil {
		ids.f.Close()
		return nil, err
	}
	return ids, nil
}

// makeIDs writes both blocks, so that later writes need no space.
func makeIDs(dir string) error {
	return writeWhole(idPath(dir), 0o600, make([]byte, 2*idSlot))
}

func (ids *idFile) write() error {
	ids.count++
	b := make([]byte, 0, idLen+4)
	b = append(b, idMagic...)
	b = binary.LittleEndian.AppendUint64(b, ids.count)
	b = binary.LittleEndian.AppendUint32(b, ids.high)
	b = binary.LittleEndian.AppendUint64(b, ids.epoch)
	b = binary.LittleEndian.AppendUint64(b, ids.generation)
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	if _, err := ids.f.WriteAt(b, int64(ids.count%2)*idSlot); err != nil {
		return fmt.Errorf("cannot reserve job ids: %w", err)
	}
	if err := fdatasync(ids.f); err != nil {
		return fmt.Errorf("cannot reserve job ids in %s: %w", ids.f.Name(), err)
	}
	return nil
}

// reserve raises the mark to at least atLeast.
func (ids *idFile) reserve(atLeast uint32) (uint32, error) {
	ids.mu.Lock()
	defer ids.mu.Unlock()
	if atLeast <= ids.high {
		return ids.high, nil
	}
	old := ids.high
	ids.high = nextMark(atLeast)
	if err := ids.write(); err != nil {
		ids.high = old
		return 0, err
	}
	return ids.high, nil
}

// nextMark rounds up to a stride.
func nextMark(atLeast uint32) uint32 {
	mark := (uint64(atLeast)/idStride + 1) * idStride
	return uint32(min(mark, math.MaxUint32))
}

package journal

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// space keeps the database file longer than bbolt needs it. bbolt grows a file by truncating it upwards, which takes no blocks, and meets a
// full disk in the middle of a commit. Here blocks are taken ahead, in steps, and written with zeros (an allocated block that was never
// written may still need space at the first write). bbolt does not touch the length of a file that is long enough.
type space struct {
	f       *os.File
	taken   int64 // bytes of the file that certainly have blocks
	step    int64
	reserve int64
}

// ensure makes sure that at least want bytes have blocks: in a whole step if the disk has it, otherwise just as many as needed.
func (s *space) ensure(want int64) error {
	if want <= s.taken {
		return nil
	}
	err := s.extend(roundUp(want, s.step))
	if errors.Is(err, ErrNoSpace) {
		err = s.extend(roundUp(want, 4096))
	}
	return err
}

// extend takes the blocks from taken up to end, all or none.
func (s *space) extend(end int64) error {
	from := s.taken
	err := unix.Fallocate(int(s.f.Fd()), 0, from, end-from)
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = nil
	}
	if err == nil {
		err = s.zero(from, end)
	}
	if err == nil {
		err = s.f.Sync()
	}
	if err != nil {
		return s.giveBack(fmt.Errorf("cannot extend %s to %d MiB: %w", s.f.Name(), end>>20, err))
	}
	s.taken = end
	return nil
}

// zero writes zeros. Nothing beyond taken is in use, because bbolt's own growth is undone or adopted after each commit.
func (s *space) zero(from, end int64) error {
	zeros := make([]byte, min(end-from, 1<<20))
	for from < end {
		n, err := s.f.WriteAt(zeros[:min(end-from, int64(len(zeros)))], from)
		if err != nil {
			return err
		}
		from += int64(n)
	}
	return nil
}

// giveBack truncates the file to its length before a failed extension.
func (s *space) giveBack(err error) error {
	if terr := s.f.Truncate(s.taken); terr != nil {
		return fmt.Errorf("%w; and cannot cut it back: %w", err, terr)
	}
	return noSpace(err)
}

// adopt accounts for a file that bbolt itself has grown: its used bytes are written, the rest has no blocks.
func (s *space) adopt(used int64) error {
	if used <= s.taken {
		return nil
	}
	s.taken = used
	return s.f.Truncate(used)
}

// worstCase bounds the bytes by which a commit can grow the file: each row may rewrite its leaf, split it, and touch the branches above. It
// is not exact (a neighbour of a small row may be huge); bbolt's own error is the second line of defence.
func worstCase(rows []Row) int64 {
	need := 64<<10 + min(int64(len(rows))*(8<<10), 64<<20)
	for _, r := range rows {
		need += 2 * int64(len(r.Key)+len(r.Value))
	}
	return need
}

func roundUp(n, step int64) int64 { return (n + step - 1) / step * step }

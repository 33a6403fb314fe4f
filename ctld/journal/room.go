package journal

import (
	"errors"

	"go.etcd.io/bbolt"
)

// tight is the last commit that was tried within the free pages of a full database and failed: the pages there were, and the bytes it
// might have needed. What asks for as much with hardly more pages is not tried again, because a failed try makes bbolt read every page.
type tight struct{ pages, bytes int64 }

const tightStep = 64 // pages

// room takes blocks for the commit before it begins. Where the disk has none, the commit may do with the free pages inside the file: it
// is told how far the file may be used, and fails cleanly (ErrMaxSizeReached) if it needs more. A commit that must succeed is tried in any
// case, and may use the reserve.
func (s *Bolt) room(tx *bbolt.Tx, rows []Row, must bool) error {
	db, used, most := tx.DB(), tx.Size(), worstCase(rows)
	db.MaxSize = 0
	want := used + most
	if !must {
		want += s.space.reserve
	}
	err := s.space.ensure(want)
	switch {
	case err == nil, !errors.Is(err, ErrNoSpace):
		return err
	case must:
		return nil
	}
	pages := freePages(db)
	if pages*int64(db.Info().PageSize) < most || pages < s.tight.pages+tightStep && most >= s.tight.bytes {
		return err
	}
	s.tight = tight{pages, most}
	db.MaxSize = int(max(s.space.taken-s.space.reserve, 1))
	return nil
}

// noRoom notes that a commit was refused for lack of space, and has whoever makes backups look for some.
func (s *Bolt) noRoom() {
	if !s.short.Swap(true) {
		s.wantBackup()
	}
}

// freePages are those that the next commit can use, unless a backup is being made.
func freePages(db *bbolt.DB) int64 {
	stats := db.Stats()
	return int64(stats.FreePageN + stats.PendingPageN)
}

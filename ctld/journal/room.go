package journal

import (
	"errors"
	"os"
	"time"

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

// atMost is what Room last found out.
type atMost struct {
	looked time.Time
	bytes  int64 // that may be in use
}

// Room implements Store. A disk holds its data three times when a backup is being made: in the database, in the newest backup, which stays
// until there is another, and in that, which is a little larger while it is written (backupBytes). Besides there are the database's reserve
// and what it takes ahead, and what a backup leaves alone. So users get a quarter of the rest of the disk: as long as they have no more,
// there is room for the next backup. Older backups and the redo log count as free, they go when their room is needed. The disk is looked at
// once a second.
func (s *Bolt) Room() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.most.looked) >= time.Second {
		s.most = atMost{time.Now(), s.mostInUse()}
	}
	return s.most.bytes - s.live.Load()
}

// mostInUse is how many bytes of the database may be in use with two copies of them beside it. The caller holds mu.
func (s *Bolt) mostInUse() int64 {
	free, err := available(s.dir)
	if err != nil {
		return Ample
	}
	whole := free + s.space.taken + folderBytes(backupDir(s.dir)) - 2*s.space.reserve - s.space.step
	used := s.used.Load()
	if s.sparse() && free < used+s.space.reserve {
		s.noRoom() // shrinking would help
	}
	return min(whole/4, (whole-used)/3)
}

// folderBytes is what the files of a folder take.
func folderBytes(dir string) (n int64) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			n += blocks(info)
		}
	}
	return n
}

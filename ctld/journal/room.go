package journal

import (
	"errors"
	"os"
	"time"

	"go.etcd.io/bbolt"
)

// tight describes the last commit that was tried within the free pages of a full database and failed: the number of free pages, and the
// bytes it might have needed. A commit of that size is not tried again until there are clearly more pages, because a failed try makes bbolt
// read every page.
type tight struct{ pages, bytes int64 }

const tightStep = 64 // pages

// room takes blocks for the commit before it begins. Where the disk has none, the commit may use the free pages inside the file: MaxSize
// limits the file, and the commit fails cleanly (ErrMaxSizeReached) if it needs more. A commit that must succeed is tried in any case, and
// may use the reserve.
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

// noRoom notes that a commit was refused for lack of space, and asks the Backuper to free some.
func (s *Bolt) noRoom() {
	if !s.short.Swap(true) {
		s.wantBackup()
	}
}

// freePages returns the number of pages that the next commit can use, unless a backup is being made.
func freePages(db *bbolt.DB) int64 {
	stats := db.Stats()
	return int64(stats.FreePageN + stats.PendingPageN)
}

// atMost is the last result of Room's look at the disk.
type atMost struct {
	looked time.Time
	bytes  int64 // that may be in use
}

// Room implements Store. During a backup the disk holds the data three times: in the database, in the newest backup, which stays until
// there is another, and in the new backup, which is a little larger while it is written (backupBytes). The database's reserve, the space it
// takes ahead, and the margin of a backup come on top. So users get a quarter of the rest of the disk: up to that there is room for the
// next backup. Older backups and the redo log count as free, because they are deleted when their room is needed. Room looks at the disk
// once a second.
func (s *Bolt) Room() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.most.looked) >= time.Second {
		s.most = atMost{time.Now(), s.mostInUse()}
	}
	return s.most.bytes - s.live.Load()
}

// mostInUse returns how many bytes of the database may be in use with two copies of them beside it. The caller holds mu.
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

// folderBytes returns the total size of the files in a directory.
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

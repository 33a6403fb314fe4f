package journal

import (
	"errors"
	"fmt"
	"io"
	"slices"
)

// Row is one change: Value nil deletes the row, and deleting one that does not exist is no error. A Batch may hold a key twice; the
// later change wins.
type Row struct {
	Bucket Bucket
	Key    []byte // 1 to MaxKey bytes
	Value  []byte // at most MaxValue bytes; the caller may reuse it after Commit
}

// Batch holds the changes of one commit, all or nothing.
type Batch struct {
	Seq  uint64 // must be greater than that of every batch before it
	Rows []Row
	// Must marks changes that have to be recorded on a full disk too, such as the end of a running job: the batch may use the reserve.
	Must bool
}

// Limits of a batch. They are far above the controller's own limits, and bound the cost of one commit.
const (
	MaxKey   = 1 << 10
	MaxValue = 16 << 20
	MaxRows  = 1 << 17
)

// Span is a range of commits that a restore has taken back: those after the last one of the backup, up to the number from which the
// restored state continues.
type Span struct{ After, UpTo uint64 }

// Store is the interface that the loop writes to. All methods may be called at any time; commits are made one after another.
type Store interface {
	// Commit makes a batch durable. An error that Is ErrNoSpace or ErrBatch changed nothing and the store goes on; after any other
	// the store must be opened anew.
	Commit(Batch) error
	// Load calls row for every row, by bucket and key, and returns the last committed sequence number. Key and value are only valid
	// during the call. An error of row ends it and is returned as it is.
	Load(row func(b Bucket, key, value []byte) error) (seq uint64, err error)
	// Get returns a copy of one value, or nil when there is no such row.
	Get(b Bucket, key []byte) ([]byte, error)
	// Backup writes a consistent copy while commits go on, and returns its length in bytes.
	Backup(w io.Writer) (int64, error)
	// Generation returns the number of the state's generation: 1, and greater with each restore. lost are the commits that restores have
	// taken back, the newest last; commits of different generations never have the same number.
	Generation() (number uint64, lost []Span)
	// Size returns the number of bytes in use.
	Size() int64
	// Room returns how many more bytes users may store before the disk is short; negative when it is short already. The call is cheap.
	Room() int64
	Close() error
}

// Ample is more room than any disk has.
const Ample = 1 << 62

// IDs hands out ranges of job ids that are never handed out again, a restore from an old backup included.
type IDs interface {
	// IDFloor is the highest id that may be in use: new ones begin above it. It is 0 for a new cluster.
	IDFloor() uint32
	// ReserveIDs records durably that ids up to the returned one, at least atLeast, may be in use. Commit does so for the keys of Jobs;
	// only ids that are handed out before they are committed need the call.
	ReserveIDs(atLeast uint32) (uint32, error)
}

// Errors that callers tell apart with errors.Is.
var (
	// ErrNoSpace: the disk is full. Nothing was changed, the store stays usable, and a Must commit may still succeed.
	ErrNoSpace = errors.New("no space left for the state database")
	// ErrBatch: the batch itself is wrong (a bug of the caller). Nothing was changed.
	ErrBatch = errors.New("not a valid batch")
	// ErrDamaged: the database is missing, truncated or altered, and Restore is needed.
	ErrDamaged = errors.New("the state database is damaged")
	// ErrLocked: another controller runs on this directory.
	ErrLocked = errors.New("the state directory is in use")
	// ErrNewer: a newer Sluice wrote the database.
	ErrNewer = errors.New("the state database was written by a newer version")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("the state database is closed")
)

// check refuses batches that cannot be stored. last is the sequence number of the previous batch.
func (b Batch) check(last uint64) error {
	if b.Seq <= last {
		return fmt.Errorf("cannot commit batch %d: the last one was %d: %w", b.Seq, last, ErrBatch)
	}
	if len(b.Rows) > MaxRows {
		return fmt.Errorf("cannot commit batch %d: it has %d rows, the limit is %d: %w", b.Seq, len(b.Rows), MaxRows, ErrBatch)
	}
	for _, r := range b.Rows {
		switch {
		case !r.Bucket.valid():
			return fmt.Errorf("cannot commit batch %d: there is no %v: %w", b.Seq, r.Bucket, ErrBatch)
		case len(r.Key) == 0 || len(r.Key) > MaxKey:
			return fmt.Errorf("cannot commit batch %d: a key of %v has %d bytes, allowed are 1 to %d: %w", b.Seq, r.Bucket, len(r.Key),
				MaxKey, ErrBatch)
		case len(r.Value) > MaxValue:
			return fmt.Errorf("cannot commit %s: its value has %d bytes, the limit is %d: %w", describe(r.Bucket, r.Key), len(r.Value),
				MaxValue, ErrBatch)
		}
	}
	return nil
}

// sorted returns the rows by bucket and key, which is the order that writes each page once.
func (b Batch) sorted() []Row {
	rows := slices.Clone(b.Rows)
	slices.SortStableFunc(rows, compareRows)
	return rows
}

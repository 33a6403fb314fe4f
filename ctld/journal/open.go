package journal

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// Open opens the state directory dir, or creates it with a new cluster id if there has never been one in it. It refuses at once with
// ErrLocked when another controller runs on it, with ErrDamaged when the database is missing, empty, truncated or altered, and with
// ErrNewer when a newer version wrote it. A damaged file is never changed.
func Open(dir string, opts Options) (*Bolt, error) {
	opts = opts.withDefaults(dir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot create the state directory: %w", err)
	}
	if fi, err := os.Stat(dir); err == nil && fi.Mode().Perm()&0o002 != 0 {
		return nil,
			fmt.Errorf(
				"cannot use the state directory %s: everybody can write to it and could add files that the controller would use; chmod "+
					"o-w it", dir)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	s := &Bolt{dir: dir, path: dbPath(dir), opts: opts, lock: lock, wanted: make(chan struct{}, 1)}
	if err := s.open(); err != nil {
		s.abandon()
		return nil, err
	}
	return s, nil
}

func (s *Bolt) open() error {
	h, err := s.examine()
	if err != nil {
		return err
	}
	s.head, s.cluster = *h, h.cluster
	if s.ids, err = openIDs(s.dir, h); err != nil {
		return err
	}
	var broken *fault
	db, f, err := openBolt(s.path, s.opts.MapBytes)
	if errors.As(err, &broken) {
		return s.opts.damaged(s.path, err)
	}
	if err != nil {
		return noSpace(fmt.Errorf("cannot open %s: %w", s.path, err))
	}
	s.db.Store(db)
	s.file = f
	info, err := s.file.Stat()
	if err != nil {
		return fmt.Errorf("cannot open %s: %w", s.path, err)
	}
	s.space = space{f: s.file, taken: min(info.Size(), blocks(info)), step: s.opts.StepBytes, reserve: s.opts.ReserveBytes}
	s.settle()
	s.space.taken = max(s.space.taken, s.used.Load())
	if err := s.space.ensure(s.used.Load() + s.opts.ReserveBytes); errors.Is(err, ErrNoSpace) {
		s.opts.Log.Warn("the disk of the state database is full: submissions will be refused", "path", s.path, "error", err)
		s.noRoom()
	} else if err != nil {
		return err
	}
	_ = os.Remove(s.path + ".new") // left by a Shrink that crashed
	return s.countOpening()
}

// examine makes sure that there is a database and that it is sound, and returns its head.
func (s *Bolt) examine() (*head, error) {
	owner, err := readSentinel(s.dir)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && owner == "" && !hasHistory(s.dir):
		if err := create(s.dir, s.opts.Schema); err != nil {
			return nil, err
		}
	case errors.Is(err, fs.ErrNotExist):
		return nil, s.opts.damaged(s.path, fmt.Errorf("it is missing, but this directory holds the state of %s", clusterName(owner)))
	case err != nil:
		return nil, fmt.Errorf("cannot open the state database: %w", err)
	case info.Size() == 0:
		return nil, s.opts.damaged(s.path, fmt.Errorf("it is empty, but this directory holds the state of %s", clusterName(owner)))
	}
	r, err := verify(s.path, nil)
	switch {
	case err == nil && r.head.schema > s.opts.Schema:
		err = fmt.Errorf("its schema is %d, this version reads %d: %w", r.head.schema, s.opts.Schema, ErrNewer)
	case err == nil && r.head.schema < s.opts.Schema:
		return nil, fmt.Errorf("cannot open %s: its schema is %d, this version reads %d: install the version that wrote it", s.path,
			r.head.schema, s.opts.Schema)
	}
	if errors.Is(err, ErrNewer) {
		return nil, fmt.Errorf("cannot open %s: %w: install the newer version again, or restore a backup made before it ran: %s --from FILE",
			s.path, err, s.opts.RestoreCommand)
	}
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("cannot open %s: %w", s.path, err)
	}
	if err != nil {
		return nil, s.opts.damaged(s.path, err)
	}
	if owner != "" && owner != r.head.cluster {
		return nil,
			fmt.Errorf(
				"cannot open %s: it belongs to cluster %s, but %s says that this directory is of cluster %s: put the right one of the "+
					"two back",
				s.path, r.head.cluster, sentinelPath(s.dir), owner)
	}
	if owner == "" {
		if err := writeSentinel(s.dir, r.head.cluster); err != nil {
			return nil, err
		}
	}
	return r.head, nil
}

// countOpening counts this opening, in the ids file first: no epoch may be used twice.
func (s *Bolt) countOpening() error {
	s.ids.epoch++
	if err := s.ids.write(); err != nil {
		return err
	}
	next := s.head
	next.epoch = s.ids.epoch
	err := transact(s.db.Load(), func(tx *bbolt.Tx) error {
		if err := errors.Join(s.room(tx, nil, true), makeBuckets(tx)); err != nil {
			return err
		}
		return putHead(tx, &next)
	})
	if err != nil {
		return noSpace(fmt.Errorf("cannot open %s: %w", s.path, err))
	}
	s.head = next
	s.redo = redo{dir: backupDir(s.dir), limit: s.opts.RedoBytes, full: s.wantBackup, reserve: s.opts.ReserveBytes}
	s.newSegment()
	s.settle()
	s.dropPages()
	return nil
}

// newSegment starts a segment of the redo log. The caller holds mu.
func (s *Bolt) newSegment() {
	if s.opts.RedoBytes < 0 || s.redo.dir == "" { // not before the database is open
		return
	}
	if err := s.redo.begin(s.head.epoch, s.head.seq); err != nil {
		s.opts.Log.Warn("cannot start the redo log: a restore would lose everything since the last backup", "error", err)
	}
}

func (s *Bolt) wantBackup() {
	select {
	case s.wanted <- struct{}{}:
	default:
	}
}

// abandon undoes an opening that failed.
func (s *Bolt) abandon() {
	if s.file != nil {
		_ = letGo(s.file)
	}
	if s.ids != nil {
		_ = s.ids.f.Close()
	}
	_ = s.lock.release()
}

// letGo closes bbolt's descriptor when bbolt itself may be unable to. The mapping, which stays, would keep the lock.
func letGo(f *os.File) error {
	return errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_UN), f.Close())
}

// create makes a new cluster: the complete database under a temporary name, then its name, then the sentinel. A crash in between leaves
// either leftovers that do not count, or a database that names its cluster.
func create(dir string, schema uint32) error {
	var id [clusterLen / 2]byte
	if _, err := rand.Read(id[:]); err != nil {
		return fmt.Errorf("cannot create a cluster id: %w", err)
	}
	h := &head{cluster: hex.EncodeToString(id[:]), schema: schema, generation: 1}
	tmp := dbPath(dir) + ".new"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot create the state database: %w", err)
	}
	if err := rewrite(tmp, h); err != nil {
		return noSpace(fmt.Errorf("cannot create the state database: %w", err))
	}
	if err := os.Rename(tmp, dbPath(dir)); err != nil {
		return fmt.Errorf("cannot create the state database: %w", err)
	}
	if err := syncDir(dir); err != nil {
		return fmt.Errorf("cannot create the state database: %w", err)
	}
	if err := writeSentinel(dir, h.cluster); err != nil {
		return err
	}
	// The redo log of the first minutes continues this backup of the empty database.
	return copyToBackups(dir, h)
}

// rewrite opens or creates the database at path, which nobody else uses, and sets its head. It commits twice, so that both meta pages are
// the same.
func rewrite(path string, h *head) error {
	db, _, err := openBolt(path, 0)
	if err != nil {
		return err
	}
	for range 2 {
		err = errors.Join(err, transact(db, func(tx *bbolt.Tx) error {
			if err := makeBuckets(tx); err != nil {
				return err
			}
			return putHead(tx, h)
		}))
	}
	return errors.Join(err, db.Close())
}

// makeBuckets makes missing buckets, and removes those of a newer version, which are empty, so that the head no longer names them.
func makeBuckets(tx *bbolt.Tx) error {
	var others [][]byte
	err := tx.ForEach(func(name []byte, _ *bbolt.Bucket) error {
		if _, known := bucketNamed(name); !known && string(name) != headName {
			others = append(others, bytes.Clone(name))
		}
		return nil
	})
	for _, name := range others {
		err = errors.Join(err, tx.DeleteBucket(name))
	}
	if err != nil {
		return err
	}
	if _, err := tx.CreateBucketIfNotExists([]byte(headName)); err != nil {
		return err
	}
	for b := Bucket(1); b <= lastBucket; b++ {
		if _, err := tx.CreateBucketIfNotExists([]byte(b.String())); err != nil {
			return err
		}
	}
	return nil
}

// openBolt opens a file that was verified or does not exist. It also returns bbolt's own descriptor.
func openBolt(path string, mapBytes int) (db *bbolt.DB, f *os.File, err error) {
	o := &bbolt.Options{Timeout: time.Second, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType, InitialMmapSize: mapBytes}
	o.OpenFile = func(name string, flag int, mode os.FileMode) (*os.File, error) {
		var err error
		f, err = os.OpenFile(name, flag, mode)
		return f, err
	}
	err = guard(func() (err error) {
		db, err = bbolt.Open(path, 0o600, o)
		if errors.Is(err, unix.ENOMEM) { // address space is limited: map only the existing file
			o.InitialMmapSize = 0
			db, err = bbolt.Open(path, 0o600, o)
		}
		return err
	})
	var broken *fault
	if errors.As(err, &broken) && f != nil {
		_ = letGo(f)
	}
	if err != nil {
		return nil, nil, err
	}
	db.AllocSize = 0 // this package takes space itself
	return db, f, nil
}

// report is the result of verify.
type report struct {
	head *head
	meta meta
}

// verify reads a whole database without mapping it, and without trusting it.
func verify(path string, row func(b Bucket, key, value []byte) error) (report, error) {
	f, err := os.Open(path)
	if err != nil {
		return report{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return report{}, err
	}
	m, _, err := readMetas(f, info.Size(), true)
	if err != nil {
		return report{}, err
	}
	_ = unix.Fadvise(int(f.Fd()), 0, int64(m.pages)*int64(m.pageSize), unix.FADV_WILLNEED)
	h, err := inspect(io.ReaderAt(f), m, row)
	return report{h, m}, err
}

// damaged formats every report of damage: which file, what is wrong, what helps.
func (o Options) damaged(path string, what error) error {
	return fmt.Errorf("cannot use %s: %w; restore it with: %s: %w", path, what, o.RestoreCommand, ErrDamaged)
}

func sentinelPath(dir string) string { return filepath.Join(dir, "CLUSTER_ID") }

// readSentinel returns "" when there is none.
func readSentinel(dir string) (string, error) {
	b, err := os.ReadFile(sentinelPath(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("cannot read the cluster id: %w", err)
	}
	id := strings.TrimSpace(string(b))
	if raw, err := hex.DecodeString(id); err != nil || len(raw) != clusterLen/2 {
		return "",
			fmt.Errorf(
				"cannot read the cluster id: %s should hold %d hexadecimal digits: if %s is sound, delete the file, and it will be "+
					"recreated: %w",
				sentinelPath(dir), clusterLen, dbPath(dir), ErrDamaged)
	}
	return id, nil
}

func writeSentinel(dir, id string) error {
	return writeWhole(sentinelPath(dir), 0o600, []byte(id+"\n"))
}

// hasHistory reports traces of a cluster whose sentinel is gone too.
func hasHistory(dir string) bool {
	if _, err := os.Stat(idPath(dir)); err == nil {
		return true
	}
	names, err := backupFiles(dir)
	return err == nil && len(names) > 0
}

func clusterName(owner string) string {
	if owner == "" {
		return "a cluster (it has backups or reserved ids)"
	}
	return "cluster " + owner
}

// blocks returns the bytes of a file that have blocks: less than its length if it has holes.
func blocks(info fs.FileInfo) int64 {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return st.Blocks * 512
}

func jobID(key []byte) uint32 { return binary.BigEndian.Uint32(key) }

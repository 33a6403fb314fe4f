package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.etcd.io/bbolt"
)

// idLeap is added to the highest id known when a restore finds the file of reserved ids unreadable.
const idLeap = 1_000_000

// Restored describes the result of a restore.
type Restored struct {
	From      string    // the file that was restored
	Written   time.Time // when that file was last written
	Seq       uint64    // the last restored commit
	Replayed  int       // commits of the redo log that were added
	BadKeptAs string    // path of the replaced database; "" if there was none
	IDFloor   uint32    // new job ids begin above it
	// Generation is the new generation of the state: hosts that have heard of it follow no controller with a lower one.
	Generation uint64
	Notes      []string // candidates that were rejected, and why; assumptions made
}

// candidate is a sound tree of pages in some file.
type candidate struct {
	path string
	meta meta
	page int // the meta page of its root; the other one is not trusted
	head *head
}

// Restore replaces the database in dir. from names a backup file; "" chooses the newest sound state, in the damaged database (bbolt keeps
// the tree before the last commit) or in a backup, and adds the later batches of the redo log. A sound database is only replaced if from is
// set. The controller must not be running. Job ids handed out since the backup are not handed out again.
func Restore(dir, from string) (Restored, error) {
	if !isState(dir, from != "") {
		return Restored{}, fmt.Errorf("cannot restore: %s contains no controller state: neither %s nor backups; --state takes the "+
			"StateSaveLocation of slurm.conf", dir, filepath.Base(dbPath(dir)))
	}
	lock, err := lockDir(dir)
	if err != nil {
		return Restored{}, err
	}
	defer lock.release()
	var r Restored
	c, err := choose(dir, from, &r)
	if err != nil {
		return r, err
	}
	if err := r.install(dir, c, from == ""); err != nil {
		return r, noSpace(err)
	}
	return r, nil
}

// isState distinguishes a state directory from a mistyped one, before a lock is made in it. A named backup may be restored to an empty
// directory.
func isState(dir string, named bool) bool {
	if entries, err := os.ReadDir(dir); err == nil && len(entries) == 0 && named {
		return true
	}
	for _, path := range []string{dbPath(dir), backupDir(dir)} {
		if _, err := os.Stat(path); err == nil {
			return true
		}
	}
	return false
}

// choose finds the candidate to restore.
func choose(dir, from string, r *Restored) (*candidate, error) {
	owner, err := readSentinel(dir)
	if err != nil {
		r.Notes = append(r.Notes, err.Error()+"; the backup's is taken")
	}
	if from != "" {
		return named(dir, from, owner)
	}
	if _, err := verify(dbPath(dir), nil); err == nil {
		return nil, fmt.Errorf("cannot restore %s: it is intact; to go back to a backup anyway, name one in %s", dbPath(dir),
			backupDir(dir))
	}
	paths := []string{dbPath(dir)}
	names, err := backupFiles(dir)
	if err != nil {
		return nil, err
	}
	slices.Reverse(names)
	for _, n := range names {
		paths = append(paths, filepath.Join(backupDir(dir), n))
	}
	for _, p := range paths { // the damaged database holds at least the commits of its newest backup
		c, err := salvage(p, owner)
		if err == nil {
			return c, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			r.Notes = append(r.Notes, fmt.Sprintf("%s: %v", p, err))
		}
	}
	return nil, fmt.Errorf("cannot restore %s: no intact copy among %d backups in %s: copy one from elsewhere and name it, "+
		"or start over with an empty directory: %w", dbPath(dir), len(names), backupDir(dir), ErrDamaged)
}

func named(dir, from, owner string) (*candidate, error) {
	if _, err := os.Stat(from); err != nil && filepath.Base(from) == from {
		from = filepath.Join(backupDir(dir), from)
	}
	c, err := salvage(from, owner)
	if err != nil {
		return nil, fmt.Errorf("cannot restore from %s: %w", from, err)
	}
	return c, nil
}

// salvage looks for a sound tree under either meta page of a file, the newer first.
func salvage(path, owner string) (*candidate, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	newest, _, err := readMetas(f, info.Size(), false)
	if err != nil {
		return nil, err
	}
	var found []*candidate
	for page := range 2 {
		m, merr := metaAt(f, info.Size(), int64(page)*int64(newest.pageSize))
		if merr != nil || info.Size() < int64(m.pages)*int64(m.pageSize) {
			continue
		}
		h, herr := inspect(f, m, nil)
		if herr != nil {
			err = errors.Join(err, herr)
			continue
		}
		found = append(found, &candidate{path, m, page, h})
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("it is damaged: %w", err)
	}
	best := slices.MaxFunc(found, func(a, b *candidate) int { return int(int64(a.meta.txid - b.meta.txid)) })
	if owner != "" && best.head.cluster != owner {
		return nil, fmt.Errorf("it belongs to cluster %s, this directory to %s", best.head.cluster, owner)
	}
	return best, nil
}

// install writes the candidate beside the database, checks it there, and swaps the two.
func (r *Restored) install(dir string, c *candidate, replay bool) error {
	info, err := os.Stat(c.path)
	if err != nil {
		return fmt.Errorf("cannot restore: %w", err)
	}
	r.From, r.Written, r.Seq = c.path, info.ModTime(), c.head.seq
	tmp := dbPath(dir) + ".new"
	if err := c.copyTo(tmp); err != nil {
		return fmt.Errorf("cannot restore from %s: %w", c.path, err)
	}
	v, err := verify(tmp, nil)
	if err != nil {
		return fmt.Errorf("cannot restore from %s: the copy is damaged: %w", c.path, err)
	}
	if replay {
		if err := r.replay(dir, tmp, v.head); err != nil {
			return fmt.Errorf("cannot restore from %s: %w", c.path, err)
		}
	}
	r.raise(dir, v.head)
	if err := rewrite(tmp, v.head); err != nil {
		return fmt.Errorf("cannot restore from %s: %w", c.path, err)
	}
	ids, err := openIDs(dir, v.head)
	if err != nil {
		return err
	}
	if err := ids.f.Close(); err != nil {
		return err
	}
	if err := r.swap(dir, tmp); err != nil {
		return fmt.Errorf("cannot restore: %w", err)
	}
	if err := writeSentinel(dir, v.head.cluster); err != nil {
		return err
	}
	r.keepCopy(dir, v.head)
	return nil
}

// replay applies to the database at path, whose head is h, the later commits of the redo log.
func (r *Restored) replay(dir, path string, h *head) error {
	chain, err := readChain(dir)
	if err != nil {
		r.Notes = append(r.Notes, err.Error())
		return nil
	}
	if _, more := chain[point{h.timeline, h.seq}]; !more {
		return nil
	}
	db, _, err := openBolt(path, 0)
	if err != nil {
		return err
	}
	for rec, ok := chain[point{h.timeline, h.seq}]; ok && err == nil; rec, ok = chain[point{h.timeline, h.seq}] {
		var b Batch
		if b, err = rec.read(); err == nil {
			err = replayBatch(db, h, b)
		}
		r.Replayed++
	}
	r.Seq = h.seq
	return errors.Join(err, db.Sync(), db.Close())
}

// replayBatch commits without syncing: the result is synced as a whole before it counts.
func replayBatch(db *bbolt.DB, h *head, b Batch) error {
	db.NoSync = true
	next := *h
	next.seq, next.floor = b.Seq, max(h.floor, highestID(b.Rows))
	err := transact(db, func(tx *bbolt.Tx) error {
		if err := errors.Join(makeBuckets(tx), apply(tx, b.sorted(), &next)); err != nil {
			return err
		}
		return putHead(tx, &next)
	})
	if err == nil {
		*h = next
	}
	return err
}

// keepCopy makes the restored state the newest backup and ends the previous redo log, so that a later restore neither goes back to the
// replaced state nor mixes the two. The epoch makes it sort last. Without room for it the old backups stay.
func (r *Restored) keepCopy(dir string, h *head) {
	if err := copyToBackups(dir, h); err != nil {
		r.Notes = append(r.Notes, fmt.Sprintf("no new backup: %v", err))
		return
	}
	logs, _ := redoFiles(dir)
	for _, n := range logs {
		_ = os.Remove(filepath.Join(backupDir(dir), n))
	}
}

// commitsPerGeneration is the distance of generations in numbers of commits. Attempts are identified by those numbers (epochs), so none of
// the commits that a restore takes back may share its number with a later one. Generations are at least a second apart, and nobody makes a
// million commits in a second.
const commitsPerGeneration = 1 << 20

// raise raises in h the numbers that must not go back: the floor of ids, the epoch, the generation and, with that, the number of the last
// commit. The new generation is the time in seconds, or one more than the last known generation if that is higher: so a controller that was
// restored from the same backup elsewhere has a different one.
func (r *Restored) raise(dir string, h *head) {
	m, err := readIDs(dir)
	if err != nil {
		m.high, m.epoch = h.floor+idLeap, h.epoch+idLeap
		r.Notes = append(r.Notes, fmt.Sprintf("%v: new job ids begin %d above the highest known id", err, idLeap))
	}
	m.atLeast(marks{high: h.floor, epoch: h.epoch, generation: h.generation})
	h.floor, h.epoch, h.timeline = m.high, m.epoch+1, m.epoch+1
	h.generation = max(m.generation+1, uint64(time.Now().Unix()))
	backup := h.seq
	h.seq = max(h.seq, h.generation*commitsPerGeneration)
	h.lost = withSpan(h.lost, Span{backup, h.seq})
	r.IDFloor, r.Generation = h.floor, h.generation
}

// mostSpans bounds the list of earlier restores: nodes that have been away since are asked for their attempts in each of these spans.
const mostSpans = 8

// withSpan adds the commits that a restore takes back. If there are too many, the two oldest spans become one.
func withSpan(lost []Span, s Span) []Span {
	lost = append(slices.Clone(lost), s)
	if len(lost) > mostSpans {
		lost[1].After = lost[0].After
		lost = lost[1:]
	}
	return lost
}

// copyTo copies the tree. Both meta pages of the copy are made from the candidate's.
func (c *candidate) copyTo(path string) error {
	in, err := os.Open(c.path)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	size := int64(c.meta.pageSize)
	_, err = io.Copy(out, io.NewSectionReader(in, 0, int64(c.meta.pages)*size))
	page := make([]byte, size)
	if err == nil {
		_, err = in.ReadAt(page, int64(c.page)*size)
	}
	if err == nil {
		other, older := 1-c.page, c.meta
		older.txid--
		native.PutUint64(page, uint64(other))
		encodeMeta(page, older)
		_, err = out.WriteAt(page, int64(other)*size)
	}
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}

// swap gives the new database its name. The old one gets a second name first, so that a database exists at every moment.
func (r *Restored) swap(dir, tmp string) error {
	db := dbPath(dir)
	if _, err := os.Lstat(db); err == nil {
		bad := db + ".bad-" + time.Now().UTC().Format("20060102T150405.000Z")
		if err := os.Link(db, bad); err != nil {
			if err := os.Rename(db, bad); err != nil {
				return err
			}
		}
		r.BadKeptAs = bad
	}
	if err := os.Rename(tmp, db); err != nil {
		return err
	}
	return syncDir(dir)
}

// copyToBackups makes a backup of a database that is not open, whose head is h.
func copyToBackups(dir string, h *head) error {
	in, err := os.Open(dbPath(dir))
	if err != nil {
		return err
	}
	defer in.Close()
	if err := os.MkdirAll(backupDir(dir), 0o700); err != nil {
		return err
	}
	path := filepath.Join(backupDir(dir), fmt.Sprintf(backupFormat, h.epoch, h.seq, time.Now().UTC().Format("20060102T150405Z")))
	f, err := os.OpenFile(filepath.Join(backupDir(dir), "new.tmp"), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, in)
	return publish(f, path, err)
}

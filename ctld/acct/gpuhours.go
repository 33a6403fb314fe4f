package acct

import (
	"context"
	"time"

	"github.com/sluice-hpc/sluice/ctld/gpuhours"
)

// gpuTables hold the use of GPUs, a row for each hour: seconds since 1970, and GPUs times seconds. A version that does not know them
// ignores them, so the format is unchanged. A row takes about a hundred bytes: four megabytes a year for a cluster with five partitions
// with GPUs.
const gpuTables = `
CREATE TABLE IF NOT EXISTS gpu_hours (
	hour INTEGER NOT NULL,
	partition TEXT NOT NULL,
	covered REAL NOT NULL,
	total REAL NOT NULL,
	down REAL NOT NULL,
	used REAL NOT NULL,
	idle REAL NOT NULL,
	unknown REAL NOT NULL,
	free REAL NOT NULL,
	asked REAL NOT NULL,
	lost REAL NOT NULL,
	waiting REAL NOT NULL,
	PRIMARY KEY (hour, partition)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS gpu_lost (
	hour INTEGER NOT NULL,
	uid INTEGER NOT NULL,
	account TEXT NOT NULL,
	partition TEXT NOT NULL,
	lost REAL NOT NULL,
	beside REAL NOT NULL,
	PRIMARY KEY (hour, uid, account, partition)
) WITHOUT ROWID;
`

const addHour = `INSERT INTO gpu_hours (hour, partition, covered, total, down, used, idle, unknown, free, asked, lost, waiting)
VALUES (?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT (hour, partition) DO UPDATE SET covered=covered+excluded.covered, total=total+excluded.total,
down=down+excluded.down, used=used+excluded.used, idle=idle+excluded.idle, unknown=unknown+excluded.unknown, free=free+excluded.free,
asked=asked+excluded.asked, lost=lost+excluded.lost, waiting=waiting+excluded.waiting`

const addLost = `INSERT INTO gpu_lost (hour, uid, account, partition, lost, beside) VALUES (?,?,?,?,?,?)
ON CONFLICT (hour, uid, account, partition) DO UPDATE SET lost=lost+excluded.lost, beside=beside+excluded.beside`

// AddHours adds hours of GPU use to the stored ones, all or nothing.
func (a *Accounting) AddHours(ctx context.Context, hours []gpuhours.Hour, losses []gpuhours.LostHour) error {
	db := a.db.Load()
	if db == nil {
		return errClosed
	}
	err := explain(db.addHours(ctx, hours, losses))
	a.suspect(err)
	return err
}

func (s *store) addHours(ctx context.Context, hours []gpuhours.Hour, losses []gpuhours.LostHour) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	for i := range hours {
		h := &hours[i]
		args := []any{h.Start, h.Partition, h.Covered}
		for _, f := range h.Fields() {
			args = append(args, *f)
		}
		if _, err := tx.ExecContext(ctx, addHour, args...); err != nil {
			return err
		}
	}
	for _, l := range losses {
		if _, err := tx.ExecContext(ctx, addLost, l.Start, l.UID, l.Account, l.Partition, l.GPUs, l.Beside); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// Hours returns the stored hours that begin in [since, until), in seconds since 1970, of all GPUs or those of a partition.
func (a *Accounting) Hours(ctx context.Context, since, until int64, partition string) (list []gpuhours.Hour, err error) {
	err = a.rowsOf(ctx, func(scan func(...any) error) error {
		h := gpuhours.Hour{Partition: partition}
		to := []any{&h.Start, &h.Covered}
		for _, f := range h.Fields() {
			to = append(to, f)
		}
		err := scan(to...)
		list = append(list, h)
		return err
	}, `SELECT hour, covered, total, down, used, idle, unknown, free, asked, lost, waiting FROM gpu_hours
WHERE hour >= ? AND hour < ? AND partition = ? ORDER BY hour`, since, until, partition)
	return list, err
}

// Losses returns the users' losses to fragmentation in the hours that begin in [since, until).
func (a *Accounting) Losses(ctx context.Context, since, until int64) (list []gpuhours.LostHour, err error) {
	err = a.rowsOf(ctx, func(scan func(...any) error) error {
		var l gpuhours.LostHour
		err := scan(&l.UID, &l.Account, &l.Partition, &l.GPUs, &l.Beside)
		list = append(list, l)
		return err
	}, "SELECT uid, account, partition, sum(lost), sum(beside) FROM gpu_lost WHERE hour >= ? AND hour < ? GROUP BY uid, account, partition",
		since, until)
	return list, err
}

// rowsOf calls each for every row of a query; a closed database has none.
func (a *Accounting) rowsOf(ctx context.Context, each func(scan func(...any) error) error, query string, args ...any) error {
	db := a.db.Load()
	if db == nil {
		return nil
	}
	rows, err := db.read.QueryContext(ctx, query, args...)
	if err != nil {
		err = explain(err)
		a.suspect(err)
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := each(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// purgeHours deletes the hours that began before a time.
func (s *store) purgeHours(ctx context.Context, before time.Time) error {
	for _, table := range []string{"gpu_hours", "gpu_lost"} {
		if _, err := s.write.ExecContext(ctx, "DELETE FROM "+table+" WHERE hour < ?", before.Unix()); err != nil {
			return explain(err)
		}
	}
	return nil
}

package acct

import (
	"context"
	"time"
)

// purgeRows bounds one transaction of a purge, so that the writer's next batch does not wait long.
const purgeRows = 5000

// keepHours is the time for which hours of GPUs are kept unless PurgeJobAfter is shorter: it bounds the tables.
const keepHours = 5 * 366 * 24 * time.Hour

// purge deletes attempts that ended longer ago than PurgeJobAfter, and texts without references.
func (a *Accounting) purge(ctx context.Context) {
	keep := a.o.Policy().Keep
	db := a.db.Load()
	if db == nil {
		return
	}
	hours := keepHours
	if keep > 0 {
		hours = min(keep, keepHours)
	}
	if err := db.purgeHours(ctx, a.o.Now().Add(-hours)); err != nil {
		a.o.Log.Error("cannot delete old GPU records from the accounting database (PurgeJobAfter)", "err", err)
	}
	if keep <= 0 {
		return
	}
	before := a.o.Now().Add(-keep)
	if err := db.purgeSteps(ctx, before); err != nil {
		a.o.Log.Error("cannot delete old steps from the accounting database (PurgeJobAfter)", "err", err)
	}
	total, err := db.purge(ctx, before)
	if err != nil {
		a.o.Log.Error("cannot delete old jobs from the accounting database (PurgeJobAfter)", "err", err)
	}
	if total > 0 {
		a.o.Log.Info("old jobs deleted from the accounting database (PurgeJobAfter)", "jobs", total, "ended_before",
			before.UTC().Format(time.RFC3339))
	}
}

func (s *store) purge(ctx context.Context, before time.Time) (total int64, err error) {
	for ctx.Err() == nil {
		res, err := s.write.ExecContext(ctx,
			"DELETE FROM jobs WHERE key IN (SELECT key FROM jobs INDEXED BY jobs_by_end WHERE end < ? LIMIT ?)", before.UnixNano(),
			purgeRows)
		if err != nil {
			return total, explain(err)
		}
		n, err := res.RowsAffected()
		if err != nil {
			return total, err
		}
		if total += n; n < purgeRows {
			break
		}
	}
	if total > 0 {
		s.texts = nil
		_, err = s.write.ExecContext(ctx,
			"DELETE FROM texts WHERE id NOT IN (SELECT script FROM jobs WHERE script IS NOT NULL UNION SELECT env FROM jobs WHERE env "+
				"IS NOT NULL)")
	}
	return total, explain(err)
}

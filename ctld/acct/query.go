package acct

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// place is the position of an attempt in an answer: a job at its id, the tasks of an array at the array's id.
type place struct{ group, key int64 }

func placeOf(j *pb.JobRecord) place {
	if j.ArrayJobId != 0 {
		return place{int64(j.ArrayJobId), key(j)}
	}
	return place{int64(j.Id), key(j)}
}

func (p place) compare(o place) int {
	return cmp.Or(cmp.Compare(p.group, o.group), cmp.Compare(p.key, o.key))
}

// part is the subset of a selection's attempts that a query covers.
type part int

const (
	whole  part = iota
	single      // jobs that are not tasks of arrays
	tasks
)

// parts returns the queries that a selection takes. A wide selection reads everything in order, for which tasks need an index of their own;
// for others the results are sorted.
func (q *selection) parts() []part {
	if q.wide || q.since <= 0 && !q.byID && len(q.r.Uids) == 0 {
		return []part{single, tasks}
	}
	return []part{whole}
}

// query returns the SQL for a part of a selection: every matching attempt in the database, and possibly more unless sqlOnly, in order of
// places. A sort only holds keys and places.
func (q *selection) query(p part) (text string, args []any, err error) {
	const columns = "SELECT jobs.key, array_id, record FROM "
	where, args := q.where()
	switch p {
	case single:
		return columns + "jobs NOT INDEXED WHERE " + where + " AND array_id = 0 ORDER BY key", args, nil
	case tasks:
		return columns + "jobs INDEXED BY jobs_by_array WHERE " + where + " AND array_id != 0 ORDER BY array_id, key", args, nil
	}
	from := "jobs INDEXED BY jobs_by_end WHERE " + where
	switch {
	case q.byID:
		ids, err := json.Marshal(q.jobs)
		if err != nil {
			return "", nil, err
		}
		arrays, err := json.Marshal(q.arrays)
		if err != nil {
			return "", nil, err
		}
		from = `jobs WHERE key IN (SELECT jobs.key FROM json_each(?) AS ids CROSS JOIN jobs ON jobs.key BETWEEN ids.value << 24 AND (ids.value << 24) + 16777215
UNION SELECT jobs.key FROM json_each(?) AS ids CROSS JOIN jobs ON jobs.key BETWEEN (ids.value << 24) + (1 << 60) AND (ids.value << 24) + (1 << 60) + 16777215
UNION SELECT jobs.key FROM json_each(?) AS ids CROSS JOIN jobs ON array_id = ids.value AND array_id != 0) AND ` + where
		args = append([]any{string(ids), string(ids), string(arrays)}, args...)
	case len(q.r.Uids) > 0:
		from = "jobs INDEXED BY jobs_by_user WHERE " + where
	}
	// LIMIT makes SQLite sort the keys first, and look up the records in that order.
	return columns + "(SELECT key AS k FROM " + from +
		" ORDER BY CASE array_id WHEN 0 THEN key >> 24 ELSE array_id END, key LIMIT -1) CROSS JOIN jobs ON jobs.key = k", args, nil
}

// where returns a condition that holds for every attempt of the selection.
func (q *selection) where() (text string, args []any) {
	var terms []string
	if n := len(q.r.Uids); n > 0 {
		terms = append(terms, "uid IN (?"+strings.Repeat(",?", n-1)+")")
		for _, uid := range q.r.Uids {
			args = append(args, uid)
		}
	}
	if q.r.Runaway {
		return strings.Join(append(terms, "end = ?"), " AND "), append(args, int64(running))
	}
	terms, args = append(terms, "end >= ?"), append(args, q.since)
	if len(q.r.Names) > 0 { // in hexadecimal: names need not be UTF-8
		names := fmt.Appendf(nil, "[\"%x\"", q.r.Names[0])
		for _, name := range q.r.Names[1:] {
			names = fmt.Appendf(names, ",\"%x\"", name)
		}
		terms = append(terms, "name IN (SELECT CAST(unhex(value) AS TEXT) FROM json_each(?))")
		args = append(args, string(append(names, ']')))
	}
	switch {
	case q.byID && !q.byState():
		terms, args = append(terms, "eligible <= ?"), append(args, q.until)
	case q.byEnd():
		terms, args = append(terms, "end <= ?"), append(args, q.until)
		if q.r.StateFlags == 0 { // an attempt with such a flag may have any state
			terms = append(terms, "state IN (?"+strings.Repeat(",?", len(q.r.States)-1)+")")
			for _, s := range q.r.States {
				args = append(args, int32(s))
			}
		}
	case q.byState():
		terms, args = append(terms, "submit <= ?"), append(args, q.until)
	default:
		terms, args = append(terms, "eligible BETWEEN 1 AND ?"), append(args, q.until)
	}
	return strings.Join(terms, " AND "), args
}

// each calls f with the database's attempts of a selection, in order of places. f may keep the record.
func (s *store) each(ctx context.Context, q *selection, f func(at place, record []byte) error) error {
	c, err := s.read.Conn(ctx) // one for all queries: they see the same snapshot
	if err != nil {
		return explain(err)
	}
	defer func() { _ = c.Close() }()
	if q.wide, err = wide(ctx, c, q); err != nil {
		return explain(err)
	}
	parts := q.parts()
	cursors := make([]cursor, len(parts))
	for i := range cursors {
		defer cursors[i].close()
		if err := cursors[i].open(ctx, c, q, parts[i]); err != nil {
			return explain(err)
		}
	}
	for next := first(cursors); next != nil; next = first(cursors) {
		if err := f(next.at, next.record); err != nil {
			return err
		}
		if err := next.step(); err != nil {
			return explain(err)
		}
	}
	return nil
}

// first returns the cursor with the lowest place, nil when all are at their ends.
func first(cursors []cursor) (next *cursor) {
	for i := range cursors {
		if c := &cursors[i]; c.more && (next == nil || c.at.compare(next.at) < 0) {
			next = c
		}
	}
	return next
}

// wideShare: a selection of more than this fraction (one quarter) of the time in which jobs have ended reads all jobs in order, because
// finding them by index, sorting their keys and looking up each would cost more.
const wideShare = 4

// wide reports whether a selection covers that much time.
func wide(ctx context.Context, c *sql.Conn, q *selection) (bool, error) {
	var first, last sql.NullInt64
	err := c.QueryRowContext(ctx, "SELECT (SELECT min(end) FROM jobs), (SELECT max(end) FROM jobs WHERE end < ?)",
		int64(running)).Scan(&first, &last)
	if err != nil || !last.Valid || q.r.Runaway || q.byID || len(q.r.Uids) > 0 {
		return false, err
	}
	from, to := max(q.since, first.Int64), min(q.until, last.Int64)
	return to-from > (last.Int64-first.Int64)/wideShare, nil
}

// cursor is a query under way, at one of its rows until there are no more.
type cursor struct {
	rows   *sql.Rows
	at     place
	record []byte
	more   bool
}

func (c *cursor) open(ctx context.Context, conn *sql.Conn, q *selection, p part) error {
	text, args, err := q.query(p)
	if err != nil {
		return err
	}
	if c.rows, err = conn.QueryContext(ctx, text, args...); err != nil {
		return err
	}
	return c.step()
}

func (c *cursor) close() {
	if c.rows != nil {
		_ = c.rows.Close()
	}
}

func (c *cursor) step() error {
	if c.more = c.rows.Next(); !c.more {
		return c.rows.Err()
	}
	c.record = nil
	err := c.rows.Scan(&c.at.key, &c.at.group, &c.record)
	if c.at.group == 0 {
		c.at.group = int64(attempt(c.at.key).Job)
	}
	return err
}

package acct

import (
	"bytes"
	"compress/flate"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"unsafe"
)

// Scripts and environments (AccountingStoreFlags=job_script, job_env) are stored once however many jobs share them, deflated.

// maxText bounds the size to which a text may inflate: more than the largest script and environment of a submission.
const maxText = 8 << 20

// textWriter stores the texts of one transaction.
type textWriter struct {
	store *store
	tx    *sql.Tx
	put   map[*byte]any // tasks of an array share their texts
	limit int64
	left  int // texts that were not kept
}

// once stores a text unless this very slice was stored before, and returns its id; nil for nil, and for a text that is not kept.
func (w *textWriter) once(ctx context.Context, uid uint32, text []byte) (id any, err error) {
	at := unsafe.SliceData(text)
	id, ok := w.put[at]
	if !ok {
		if id, err = w.one(ctx, uid, text); err == nil && len(text) > 0 {
			w.put[at] = id
		}
	}
	return id, err
}

func (w *textWriter) one(ctx context.Context, uid uint32, text []byte) (any, error) {
	if text == nil {
		return nil, nil
	}
	hash := sha256.Sum256(text)
	var id int64
	err := w.tx.QueryRowContext(ctx, "SELECT id FROM texts WHERE hash = ?", hash[:]).Scan(&id)
	if err == nil {
		return id, nil
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return nil, err
	}
	data := deflate(text)
	held, err := w.held(ctx, uid)
	if err != nil {
		return nil, err
	}
	if w.limit > 0 && uid != 0 && held+int64(len(data)) > w.limit {
		w.left++
		return nil, nil
	}
	res, err := w.tx.ExecContext(ctx, "INSERT INTO texts (hash, data, uid) VALUES (?, ?, ?)", hash[:], data, uid)
	if err != nil {
		return nil, err
	}
	w.store.texts[uid] = held + int64(len(data))
	return res.LastInsertId()
}

// held returns the bytes of a user's texts in the database.
func (w *textWriter) held(ctx context.Context, uid uint32) (n int64, err error) {
	if w.store.texts == nil {
		w.store.texts = map[uint32]int64{}
	}
	n, known := w.store.texts[uid]
	if !known {
		err = w.tx.QueryRowContext(ctx, "SELECT coalesce(sum(length(data)), 0) FROM texts INDEXED BY texts_by_user WHERE uid = ?",
			uid).Scan(&n)
		w.store.texts[uid] = n
	}
	return n, err
}

// text returns a stored text of the last attempt of a job and the job's owner; found is false for a job that is not stored.
func (s *store) text(ctx context.Context, id uint32, column string) (data []byte, uid uint32, found bool, err error) {
	low := int64(id) << attemptBits
	var packed []byte
	err = s.read.QueryRowContext(ctx, "SELECT uid, (SELECT data FROM texts WHERE texts.id = jobs."+column+
		") FROM jobs WHERE key BETWEEN ? AND ? OR key BETWEEN ? AND ? ORDER BY key DESC LIMIT 1",
		low, low|maxRestarts, low|arrays, low|arrays|maxRestarts).Scan(&uid, &packed)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, 0, false, nil
	}
	if err == nil && packed != nil {
		data, err = inflate(packed)
	}
	if err != nil {
		return nil, 0, false, fmt.Errorf("cannot read the script or environment of job %d from accounting: %w", id, explain(err))
	}
	return data, uid, true, nil
}

func deflate(b []byte) []byte {
	var out bytes.Buffer
	w, err := flate.NewWriter(&out, flate.BestSpeed)
	if err == nil {
		_, err = w.Write(b)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		panic(err) // a buffer accepts everything
	}
	return out.Bytes()
}

func inflate(b []byte) ([]byte, error) {
	r := flate.NewReader(bytes.NewReader(b))
	return io.ReadAll(io.LimitReader(r, maxText))
}

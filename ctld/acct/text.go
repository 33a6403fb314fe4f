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

// maxText bounds what one may inflate to: more than the largest script and environment that a submission may have.
const maxText = 8 << 20

// putOnce stores a text unless this very one was put before, and returns its id; nil for nil.
func putOnce(ctx context.Context, tx *sql.Tx, put map[*byte]any, text []byte) (id any, err error) {
	at := unsafe.SliceData(text)
	id, ok := put[at]
	if !ok {
		if id, err = putText(ctx, tx, text); err == nil && len(text) > 0 {
			put[at] = id
		}
	}
	return id, err
}

// putText stores a text and returns its id; nil for nil.
func putText(ctx context.Context, tx *sql.Tx, text []byte) (any, error) {
	if text == nil {
		return nil, nil
	}
	hash := sha256.Sum256(text)
	var id int64
	err := tx.QueryRowContext(ctx, "SELECT id FROM texts WHERE hash = ?", hash[:]).Scan(&id)
	if err == nil {
		return id, nil
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return nil, err
	}
	res, err := tx.ExecContext(ctx, "INSERT INTO texts (hash, data) VALUES (?, ?)", hash[:], deflate(text))
	if err != nil {
		return nil, err
	}
	return res.LastInsertId()
}

// text is a stored text of the last attempt of a job and the job's owner; found is false for a job that is not stored.
func (s *store) text(ctx context.Context, id uint32, column string) (data []byte, uid uint32, found bool, err error) {
	low := int64(id) << attemptBits
	var packed []byte
	err = s.read.QueryRowContext(ctx, "SELECT uid, (SELECT data FROM texts WHERE texts.id = jobs."+column+") FROM jobs WHERE key BETWEEN ? AND ? OR key BETWEEN ? AND ? ORDER BY key DESC LIMIT 1",
		low, low|maxRestarts, low|arrays, low|arrays|maxRestarts).Scan(&uid, &packed)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, 0, false, nil
	}
	if err == nil && packed != nil {
		data, err = inflate(packed)
	}
	if err != nil {
		return nil, 0, false, fmt.Errorf("cannot read what accounting kept of job %d: %w", id, explain(err))
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
		panic(err) // a buffer takes everything
	}
	return out.Bytes()
}

func inflate(b []byte) ([]byte, error) {
	r := flate.NewReader(bytes.NewReader(b))
	return io.ReadAll(io.LimitReader(r, maxText))
}

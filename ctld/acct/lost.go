package acct

import (
	"context"
	"database/sql"
	"errors"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// recall makes the row of an attempt that a restore has lost from a node's report and the database: the latter may have it from before the
// restore, if it was not restored too, or from other nodes.
func (r *row) recall(ctx context.Context, tx *sql.Tx) error {
	var b []byte
	switch err := tx.QueryRowContext(ctx, "SELECT record FROM jobs WHERE key = ?", r.key).Scan(&b); {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return err
	}
	have, err := decoded(b)
	if err != nil {
		return err
	}
	*r, err = rowOf(recalled(have, r.lost))
	return err
}

// recalled merges a node's report of an attempt's end into its record. An end that the controller itself recorded stays.
func recalled(have, told *pb.JobRecord) *pb.JobRecord {
	if ended(have) && (have.Lost == nil || !state.SaysMore(told.Lost, have.Lost)) {
		return have
	}
	n := state.CloneJob(have)
	n.State, n.StateFlags, n.ExitStatus = told.State, told.StateFlags, told.ExitStatus
	n.Attempt, n.StartNs, n.EndNs, n.Reason, n.ReasonDetail = told.Attempt, told.StartNs, told.EndNs, told.Reason, told.ReasonDetail
	n.BatchHost, n.NodeList, n.NumNodes = told.BatchHost, told.NodeList, told.NumNodes
	n.BatchStartNs, n.BatchEndNs, n.BatchStatus, n.BatchVerdict = told.BatchStartNs, told.BatchEndNs, told.BatchStatus, told.BatchVerdict
	n.SystemComment, n.Lost = told.SystemComment, told.Lost
	return n
}

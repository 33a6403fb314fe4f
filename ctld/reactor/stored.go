package reactor

import "github.com/sluice-hpc/sluice/ctld/state"

// Stored is what accounting says when it has attempts of the outbox on disk.
type Stored struct{ Attempts []state.Attempt }

// Handle takes them out of the outbox.
func (c Stored) Handle(tx *state.Tx) any {
	if len(c.Attempts) > 0 {
		tx.Emit(state.AttemptsStored{Attempts: c.Attempts})
	}
	return nil
}

package reactor

import "github.com/sluice-hpc/sluice/ctld/state"

// Stored: accounting has attempts or steps of the outbox on disk.
type Stored struct {
	Attempts []state.Attempt
	Steps    []state.StepKey
}

// Handle removes them from the outbox.
func (c Stored) Handle(tx *state.Tx) any {
	if len(c.Attempts) > 0 {
		tx.Emit(state.AttemptsStored{Attempts: c.Attempts})
	}
	if len(c.Steps) > 0 {
		tx.Emit(state.StepsStored{Steps: c.Steps})
	}
	return nil
}

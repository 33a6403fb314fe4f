package reactor

import "github.com/sluice-hpc/sluice/ctld/state"

// Stored is what accounting says when it has attempts of the outbox on disk, or steps.
type Stored struct {
	Attempts []state.Attempt
	Steps    []state.StepKey
}

// Handle takes them out of the outbox.
func (c Stored) Handle(tx *state.Tx) any {
	if len(c.Attempts) > 0 {
		tx.Emit(state.AttemptsStored{Attempts: c.Attempts})
	}
	if len(c.Steps) > 0 {
		tx.Emit(state.StepsStored{Steps: c.Steps})
	}
	return nil
}

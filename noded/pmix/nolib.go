//go:build !pmix || !cgo

package pmix

import (
	"errors"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Built reports whether this program has libpmix.
const Built = false

var errNoLibrary = errors.New("sluice-pmix was built without libpmix: install libpmix-dev and pkg-config, and run make build again")

// nothing replaces libpmix in builds without it.
type nothing struct{}

func open(*server) library { return nothing{} }

func (nothing) start(*pb.PmixJob) error      { return errNoLibrary }
func (nothing) env(uint32) ([]string, error) { return nil, errNoLibrary }
func (nothing) answer(ticket, int32, []byte) {}
func (nothing) fetch(uint32, uint64) int32   { return -1 }

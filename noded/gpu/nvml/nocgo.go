//go:build !cgo

package nvml

import (
	"errors"

	"github.com/sluice-hpc/sluice/noded/gpu"
)

// Missing is the line of --version about this build.
const Missing = "built without cgo: it finds no NVIDIA GPUs\n"

// Open reports that this build cannot talk to a driver.
func Open() (gpu.Source, error) {
	return nil,
		errors.New("this sluice-noded was built without cgo and cannot talk to NVIDIA's driver; build it on a machine with a C compiler")
}

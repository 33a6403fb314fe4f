// Package early is sbatch, for a binary that holds other commands too: imported for its effect, it runs sbatch to its end when
// that is the name the program was called by.
//
// It does so while packages are being initialised. An sbatch lives for two milliseconds, and setting up the packages that the
// other commands need (protobuf and its registry of messages above all) would add a third to that. Go initialises packages in the
// order of their import paths as soon as what they import is ready (Go specification, "Package initialization"), and this one
// needs little, so it comes before them. A program of its own was rejected: one binary serves all commands.
package early

import (
	"os"
	"path/filepath"

	"github.com/sluice-hpc/sluice/client/sbatch"
)

func init() {
	if filepath.Base(os.Args[0]) == "sbatch" {
		os.Exit(sbatch.Main(sbatch.Process(), os.Args[1:]))
	}
}

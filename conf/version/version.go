// Package version holds the two versions that every command and daemon names: the interface it speaks and its own.
package version

const (
	// Slurm is the release whose command line, output and variables Sluice follows; tools parse it from --version.
	Slurm = "25.11.0"
	// Sluice is this program's own version.
	Sluice = "0.1.0"
)

// Text is what --version prints: Slurm's line first, because tools read only that one.
func Text() string { return "slurm " + Slurm + "\nsluice " + Sluice + "\n" }

// Package version holds the two versions that every command and daemon names: the interface it speaks and its own.
package version

// Slurm is the release whose command line, output and variables Sluice follows; tools parse it from --version.
const Slurm = "25.11.0"

// Sluice is this program's own version. The linker puts VERSION of deploy/packages/build in its place.
var Sluice = "0.1.0"

// Interface is what the commands of Slurm's names print for --version. It is one line: EasyBuild takes the last word of all that
// is printed for Slurm's release.
func Interface() string { return "slurm " + Slurm + "\n" }

// Text is what sluice and the daemons print for --version.
func Text() string { return Interface() + "sluice " + Sluice + "\n" }

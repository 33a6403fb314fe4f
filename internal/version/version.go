// Package version holds the versions that commands and daemons report: Slurm's interface, Sluice's release, the protocol, and the
// generation of the controller's state.
//
// # Across releases
//
// Messages only gain fields, and a release keeps unknown fields of rows that it rewrites, so most releases work together without
// negotiation. For those that cannot, each handshake carries a Build: a protocol number and the oldest one understood. The caller
// sends it as metadata of the call, and the controller checks both directions, because only then does one side know both numbers.
// Commands do not request a number in the answer: it would cost a round trip. A shim that is not understood is never killed: the
// node daemon does not start, and the exit record waits for one that understands it. The database has a schema number and rejects
// unknown kinds of rows before anything is written.
//
// # Generations
//
// A restore takes the state back in time, so it raises the state's Generation (journal, restore.go). The number is in the head of
// the database and in the file "ids", which a restore does not take back, and in each handshake, both ways. A host stores the
// highest one before it follows the controller's orders and rejects a lower one; the controller rejects such a host as well. The
// number is the time of the restore. Rejected: a count, because two hosts restored from the same backup would have the same one.
// Commit numbers jump with it, so an attempt started after a restore has another epoch than any before. A host that requests its
// first configuration checks nothing, because it does not know yet where its spool is; its first stream does.
package version

// Slurm is the release whose command line, output and variables Sluice follows; tools parse it from --version.
const Slurm = "25.11.0"

// Sluice is this program's own version. The linker sets it to VERSION of deploy/packages/build.
var Sluice = "0.1.0"

// Interface is the output of Slurm's commands for --version. It is one line: EasyBuild takes the last word of the whole output as
// Slurm's release.
func Interface() string { return "slurm " + Slurm + "\n" }

// Text is the output of sluice and the daemons for --version.
func Text() string { return Interface() + "sluice " + Sluice + "\n" }

// Package nofile records the limit of open files with which this process was started.
//
// A job gets the limits of the shell that submits it (sbatch(1), --propagate), but Go raises the soft limit of open files to the
// hard one before main: package syscall does so at initialisation and does not export the old value, and getrlimit(2) returns the
// raised one from then on. This package imports nothing, so it is initialised before syscall (packages whose imports are ready are
// initialised in the order of their paths), and it asks the kernel itself. Reading the limit of the parent process instead would be
// wrong if the shell has replaced itself by sbatch.
package nofile

// AtStart returns the soft and the hard limit; ok is false if the kernel did not report them.
func AtStart() (soft, hard uint64, ok bool) { return start[0], start[1], asked == 0 }

var (
	start [2]uint64
	asked = getrlimit(&start)
)

// getrlimit is prlimit64(0, RLIMIT_NOFILE, NULL, limit).
//
//go:noescape
func getrlimit(limit *[2]uint64) (errno int64)

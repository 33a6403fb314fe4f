// Package failpoint ends the process at a chosen place, for crash tests: SLUICE_FAILPOINT=name:n kills the process with SIGKILL at
// the n-th call of Hit(name) (n from 1; name alone means 1). Without the variable a Hit costs one comparison.
package failpoint

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

var (
	name  string
	after int64
	hits  atomic.Int64
)

func init() {
	name, after = parse(os.Getenv("SLUICE_FAILPOINT"))
}

func parse(s string) (string, int64) {
	name, count, found := strings.Cut(s, ":")
	n, err := strconv.ParseInt(count, 10, 64)
	if !found || err != nil || n < 1 {
		n = 1
	}
	return name, n
}

// Hit kills the process if this is the chosen call.
func Hit(place string) {
	if name == "" || name != place || hits.Add(1) != after {
		return
	}
	// Not kill(2), which noded-link's seccomp filter forbids.
	_, _, _ = syscall.RawSyscall(syscall.SYS_TGKILL, uintptr(os.Getpid()), uintptr(syscall.Gettid()), uintptr(syscall.SIGKILL))
	select {} // the signal is on its way
}

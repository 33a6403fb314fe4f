// Package leaktest fails tests that leave goroutines behind. It uses goleak, but waits longer for goroutines that are about to end
// than goleak's half second, which is too short on a busy machine.
package leaktest

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is how long goroutines may take to end; only a leak takes as long.
const patience = 2 * time.Minute

// Main runs the tests of a package, for its TestMain, and fails if goroutines are left at the end.
func Main(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if err := Find(); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines are left by the tests:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// None fails the test if goroutines are left, except those in options. It is for the end of a test, or for a Cleanup.
func None(t testing.TB, options ...goleak.Option) {
	t.Helper()
	if err := Find(options...); err != nil {
		t.Error(err)
	}
}

// Find waits until no goroutines are left, except those in options, and returns the rest on a timeout.
func Find(options ...goleak.Option) error {
	for began := time.Now(); ; {
		if err := goleak.Find(options...); err == nil || time.Since(began) > patience {
			return err
		}
	}
}

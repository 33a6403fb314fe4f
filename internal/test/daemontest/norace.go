//go:build !race

package daemontest

// Raced reports whether the daemons are built with the race detector, like the tests: everything then takes ten times as long.
const Raced = false

//go:build race

package crashtest

// With the race detector in the tests it is in the daemons too; what it finds is in their logs.
func init() { buildFlags = append(buildFlags, "-race") }

// raced: the daemons are built with the detector of data races, too, and everything takes ten times as long.
const raced = true

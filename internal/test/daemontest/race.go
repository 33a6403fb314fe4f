//go:build race

package daemontest

// Raced says whether daemons are built with the detector of data races, as the tests are: then everything takes ten times as long.
const Raced = true

//go:build race

package simtest

// raced: the tests are built with the detector of data races, and take ten times as long.
const raced = true

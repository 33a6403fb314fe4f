// Package rules checks the rules of CONTRIBUTING.md and the names in ARCHITECTURE.md: imports, purity, what a command
// links, names, sizes of files, fields that nothing reads.
package rules

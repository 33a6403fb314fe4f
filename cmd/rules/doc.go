// Package rules checks the rules of CONTRIBUTING.md and the names in ARCHITECTURE.md: imports, purity, packages linked into
// commands, names, file sizes, unread fields.
package rules

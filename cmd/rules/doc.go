// Package rules holds rules of the house as tests: who may import whom, what the packages that decide may not call, what a
// command may be linked with, names, sizes of files.
package rules

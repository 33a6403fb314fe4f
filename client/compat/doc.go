// Package compat compares Sluice's commands with those of a real Slurm, and keeps the contracts of tools that parse them.
//
// testdata/corpus/*.txtar are scripts of command lines, typed at both systems by one driver (driver_test.go). What the real
// Slurm answered is kept beside each script, in NAME.slurm: `make oracle` records it again, with Debian's packages on loopback
// (.ci/oracle). The test needs no Slurm: it types the scripts at a cluster of Sluice and compares standard output, standard
// error and exit code of every command.
//
// What must differ is hidden on both sides (mask_test.go): moments, ids, process ids, folders, ports. What differs on purpose is
// kept, too: rules for whole families of lines in testdata/differences, and NAME.sluice with Sluice's answer to single
// commands, each under a heading of docs/differences.md. A difference that is not listed fails the test, and so does a listed one
// that is none any more.
//
// A script's lines are:
//
//	> COMMAND            type it, by bash, and record the answer
//	nobody> COMMAND      the same as an ordinary user
//	A = COMMAND          the same, and the job's id that it prints becomes $A
//	wait $A STATE…       until the job is in one of the states; STATE,REASON also asks for the reason
//	waitfor RE :: COMMAND   until what the command prints matches
//	# …                  a comment
//
// The files of the archive are in the folder where the commands run.
package compat

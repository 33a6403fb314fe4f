// Package compat compares the commands of Sluice with those of a real Slurm, and checks the output formats that well-known tools
// parse.
//
// testdata/corpus/*.txtar are scripts of command lines that one driver runs on both systems (driver_test.go). The answers of the
// real Slurm are stored beside each script, in NAME.slurm; `make oracle` records them again, with Debian's packages on loopback
// (.ci/oracle). The test needs no Slurm: it runs the scripts on a cluster of Sluice and compares standard output, standard error
// and exit status of every command.
//
// Values that must differ are masked on both sides (mask_test.go): times, ids, process ids, directories, ports. Intended
// differences are stored, too: rules for whole families of lines in testdata/differences, and NAME.sluice with Sluice's answer to
// single commands, each under a heading of docs/differences.md. A difference that is not listed fails the test, and so does a
// listed one that no longer exists.
//
// A script's lines are:
//
//	> COMMAND            run it with bash, and record the answer
//	nobody> COMMAND      the same as an ordinary user
//	A = COMMAND          the same, and the printed job id becomes $A
//	wait $A STATE…       until the job is in one of the states; STATE,REASON also waits for the reason
//	waitfor RE :: COMMAND   until the command's output matches
//	# …                  a comment
//
// The files of the archive are in the directory where the commands run.
package compat

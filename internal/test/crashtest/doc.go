// Package crashtest tests crashes: it runs the real daemons, kills them with SIGKILL, fills their disks, damages their files and
// cuts their power, while an independent witness records which jobs ran. It holds tests only.
//
// # The witness
//
// Each test job appends lines "job restart pid start|end uptime" to a file of its own and syncs it. No daemon writes or reads these
// files. At the end three sources are compared (ledger.check): the answers to the submitters, the witness, and the controller. An
// acknowledged job ran exactly once, from its first line to its last; an unacknowledged one ran at most once; every end has the
// status that the script returned.
//
// # Running it
//
//	go test ./internal/test/crashtest                 # as root, within five minutes on two cores
//	go test ./internal/test/crashtest -v -kills 200   # more kills
//	go test ./internal/test/crashtest -v -seed 7      # the same decisions again (not the same interleaving)
//	go test ./internal/test/crashtest -bin $PWD/bin   # the programs of make build; -logs DIR keeps the logs of failed tests
//
// All files of the suite are in one directory below /var/tmp. A keeper process removes processes, mounts, cgroups and files even
// when the test binary itself is killed.
package crashtest

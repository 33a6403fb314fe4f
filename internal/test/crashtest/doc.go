// Package crashtest tests crashes: it runs the real daemons, kills them with SIGKILL, fills their disks, damages their
// files and cuts their power, while an outside witness notes what really ran. It holds tests only.
//
// # The witness
//
// Each test job appends lines "job restart pid start|end uptime" to a file of its own and syncs it. No daemon writes or
// reads these files. In the end three things are compared (ledger.check): what the submitters were told, what the
// witness saw, and what the controller says. An acknowledged job ran exactly once, from its first line to its last; one
// that was not acknowledged ran at most once; every end has the status that the script gave it.
//
// # Running it
//
//	go test ./internal/test/crashtest                 # as root, within five minutes on two cores
//	go test ./internal/test/crashtest -v -kills 200   # more kills
//	go test ./internal/test/crashtest -v -seed 7      # the same decisions again (not the same interleaving)
//	go test ./internal/test/crashtest -bin $PWD/bin   # the programs of make build; -logs DIR keeps the logs of failed tests
//
// Everything that the suite makes is in one directory below /var/tmp. A keeper process removes processes, mounts,
// cgroups and files also when the test binary itself is killed.
package crashtest

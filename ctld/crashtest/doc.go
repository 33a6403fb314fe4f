// Package crashtest is the crash suite: the real daemons as processes, killed with SIGKILL, starved of disk, their files damaged
// and their power cut, while an outside witness notes what really ran. It holds tests only.
//
// # The witness
//
// Each test job appends lines "job restart pid start|end uptime" to a file of its own and syncs it. No daemon writes or reads these
// files. When the dust has settled, what the submitters were told, what the witness saw and what the controller says are
// compared (ledger.check): an acknowledged job ran exactly once, from its first line to its last; one that was not acknowledged
// ran at most once; every end has the status that the script gave it.
//
// # Running it
//
//	go test ./ctld/crashtest                 # as root, within five minutes on two cores
//	go test ./ctld/crashtest -v -kills 200   # more kills
//	go test ./ctld/crashtest -v -seed 7      # the same decisions again (not the same interleaving)
//	go test ./ctld/crashtest -bin $PWD/bin   # the programs of make build; -logs DIR keeps the logs of what fails
//
// All that the suite makes lies in one folder below /var/tmp; a keeper process removes processes, mounts, cgroups and files also
// when the test binary itself is killed.
package crashtest

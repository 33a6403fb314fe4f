// Package simtest runs a whole cluster in one process, without goroutines, disk, network and clock: the controller's
// real loop, reactor, state, planner, scheduler and dispatcher, and the node daemon's real lifecycle of steps, over a
// journal in memory, streams that delay, break and partition, and a simulated noded-root with simulated shims. Everything
// that happens is an event on one heap, and everything random comes from one seed, so a failure is repeated by its seed
// alone.
//
// In a run (sim.go) users submit jobs, arrays, jobs that depend on others, that ask for devices and licenses, that share
// or preempt (workload.go), reserve nodes and cores, and interfere with them while faults strike (faults.go); machines
// are switched off and on by programs that are late or do nothing (power.go). Then everything is repaired and the
// cluster must come to rest: every acknowledged job has ended, nothing is left on any node, and each node is up, or
// asleep.
//
// With Options.Restore backups are made and restored at random points (restore.go), in place or on a host that knows
// nothing of what was given out since.
//
// A witness (witness.go) watches from outside, by what the simulated processes do and not by what the controller
// believes:
//
//   - a script of an attempt starts once, and only while the attempt is the job's;
//   - no two attempts of a job are alive at the same time, unless a node was declared DOWN, and never two on one node;
//   - no core of a node is used by more jobs than may share it, no device by two, and no more memory than there is,
//     counting also what was given up with a node and is still alive there; no more licenses are used than there are
//     (limits.go);
//   - a step of srun runs at most once on each of its nodes, within its allocation and on CPUs of its own, ends before
//     that, and has one terminal record;
//   - a job starts only when its array's limit, its dependency and the reservations of others allow it;
//   - every task of every array comes to an end, and whoever waits has a reason;
//   - a node's share of a job is free only when nothing of the job is alive there and its epilog has run, with the same
//     exception;
//   - an attempt has one terminal record, which says what the shim's exit record says, or what somebody ordered;
//   - what was acknowledged is there after every crash, record for record;
//   - whatever is done to the clocks of the machines (set forward and back, drifting, another time after a reboot:
//     clocks.go), an attempt did not end before it began, nor take longer than there was time, and nobody waits for a
//     time that only a wrong clock has named;
//   - state.Check holds after every commit.
//
// Not real are the loop around the lifecycle (daemon.go), the streams and the glue around the dispatcher (controller.go
// follows rpc/node.go), noded-root (root.go) and the shims (shim.go follows noded/stepd).
package simtest

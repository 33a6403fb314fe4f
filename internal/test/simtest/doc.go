// Package simtest runs a whole cluster in one process, without goroutines, disk, network and clock: the controller's
// real loop, reactor, state, planner, scheduler and dispatcher, and the node daemon's real lifecycle of steps, over a
// journal in memory, streams that delay, break and partition, and a simulated noded-root with simulated shims. Everything
// that happens is an event on one heap, and everything random comes from one seed, so a failure is repeated by its seed
// alone.
//
// In a run (sim.go) users submit jobs, arrays, and jobs that depend on others, ask for devices and licenses, share, or preempt
// (workload.go). They reserve nodes and cores, and interfere with jobs while faults strike (faults.go). Programs that are late or
// do nothing switch machines off and on (power.go). Then everything is repaired and the cluster must come to rest: every
// acknowledged job has ended, nothing is left on any node, and each node is up, or asleep.
//
// With Options.Restore backups are made and restored at random points (restore.go), in place or on a host that knows nothing of
// what was handed out since.
//
// A witness (witness.go) watches from outside. It judges by the actions of the simulated processes, not by the controller's
// beliefs:
//
//   - an attempt's script starts once, and only while the attempt is the job's current one;
//   - no two attempts of a job are alive at the same time, unless a node was declared DOWN, and never two on one node;
//   - no core of a node is used by more jobs than may share it, no device by two, and no more memory than there is,
//     counting also jobs that were given up with a node and are still alive there; no more licenses are used than exist
//     (limits.go);
//   - an srun step runs at most once on each of its nodes, within its allocation and on CPUs of its own, ends before
//     that, and has one terminal record;
//   - a job starts only when its array's limit, its dependency and the reservations of others allow it;
//   - every task of every array comes to an end, and every waiting job has a reason;
//   - a node's share of a job is free only when nothing of the job is alive there and its epilog has run, with the same
//     exception;
//   - an attempt has one terminal record, which agrees with the shim's exit record, or with an order;
//   - every acknowledged record survives every crash unchanged;
//   - whatever is done to the clocks of the machines (set forward and back, drifting, another time after a reboot:
//     clocks.go), no attempt ends before it began or takes longer than the elapsed time, and nothing waits for a
//     time that only a wrong clock has produced;
//   - state.Check holds after every commit.
//
// Simulated are the loop around the lifecycle (daemon.go), the streams and the glue around the dispatcher (controller.go follows
// rpc/node.go), noded-root (root.go) and the shims (shim.go follows noded/stepd).
package simtest

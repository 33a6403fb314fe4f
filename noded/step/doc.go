// Package step is the node daemon's side of running steps. It writes a step's bundle into the spool, keeps a small pool of shims
// (package stepd), gives each step to one of them, forwards orders, and reports the end of every step.
//
//	r, err := step.New(step.Options{Spool: spool, CgroupRoot: "sluice/c1/n1", Log: log})
//	have, err := r.Recover(ctx)          // once, before anything else: every step that the spool or a live shim knows
//	err = r.Launch(ctx, bundle, script)  // nil: a shim has it and will report its end, whatever happens to this process
//	err = r.Control(ctx, order)          // stop, kill, signals, limit_s, suspend; idempotent
//	for rep := range r.Reports() { … }   // every change, newest state per step
//	err = r.Forget(key)                  // its exit record has been committed: delete all that is left of it
//	err = r.Close()                      // steps continue; idle shims end
//
// # Layout of the spool
//
//	<spool>/steps/<job>.<attempt>.<step>/   directory of one step attempt, 0711 root
//	    bundle.pb     pb.Bundle, 0600
//	    slurm_script  the batch script: root-owned; an access control list lets its user read and execute it
//	    exit.pb       pb.ExitRecord and its checksum, once it has ended (temporary file, rename, then one fsync)
//	    …             files of the caller (Dir), deleted with the rest by Forget
//	<spool>/steps/.new-*                    written, but accepted by no shim: nothing of it has run
//	<spool>/steps/.free-*                   left by a forgotten step, for the next one of the same user
//	<spool>/shims/<n>                       socket of one shim
//
// # Who owns a step
//
// A launch is accepted by one rename: the shim moves .new-* to its final name and owns the step from then on. Before the rename
// nothing has run and the launch can be repeated. After it an exit record is certain: the shim writes it or, if the shim has
// died, the runner does (verdict "lost"), after it has killed everything in the step's cgroup. Recover first deletes every
// .new-*, so that no late launch can be accepted behind its back, then asks each shim.
//
// # Recycling
//
// Starting a shim costs more than a short job. A shim whose step has ended (record on disk, cgroup gone) takes the next one. The
// Runner keeps at least MinIdle idle shims, and ends those above it after IdleTimeout. A shim serves one step at a time, so that
// its death affects one step.
//
// # Contracts
//
// Launch returns an error only if no shim has accepted the step: nothing of it runs or remains, and it may be retried. Later
// failures (working directory, output files, exec) end the step with an exit record: output_failed, or node_failed if nothing of
// it could run because of this node. Launch of a known step starts nothing and is not an error. Launch returns when the step has
// ended or has run for about 10 ms: a shorter job costs one call and one report (ENDED, with start_ns). Concurrent launches take
// turns, two per processor and at least four, so that a burst of short jobs runs through a few warm shims and does not start a
// shim for each.
//
// Control takes limit_s (0: no limit) and suspended from an order with WANT_RUN alone. A COMPLETING report with an
// ExitRecord carries only its detail: what keeps the step from ending. limits.memory_swap_mib is memory and swap together,
// and counts when it is not less than memory_mib.
//
// A relative bundle.Argv[0] is taken inside the step's directory; an empty argv means the batch script. bundle.Cgroup must be a
// single name that no other attempt uses.
package step

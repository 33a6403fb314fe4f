// Package pass makes plans: it goes through the queue once (Runner.Plan) and decides which jobs start, which are
// promised a start, and which running jobs are preempted.
//
// Each rule has a file of its own, so that it can be replaced there:
//
//   - pass.go: the pass over the classes of the queue, and starts
//   - turn.go: which classes of a family are opened
//   - order.go: the order of backfill candidates (Params.Order)
//   - backfill.go: which jobs are promised a start, and when (Params.HeadGuardS, MaxWaitS)
//   - preempt.go: preemption
//   - limits.go: limits of associations and QOS
//   - dominance.go: jobs that need not be tried because a smaller one failed
//   - reasons.go: why jobs wait
//
// The starts and promises that a pass adds to the index are removed when it ends.
package pass

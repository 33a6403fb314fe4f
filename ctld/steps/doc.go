// Package steps places a step within its allocation: nodes, CPUs, memory, devices, and which tasks run where. Pure.
//
// The rules are those of srun(1) of Slurm 22.05:
//
//   - A step has its CPUs for itself, unless it or the other one was started with --overlap. Overlapping steps count
//     nowhere.
//   - It gets all CPUs that the job has on the nodes of the step; with --exact (implied by --cpus-per-task and
//     --threads-per-core) those that its tasks need, rounded up to whole cores where these are allocated.
//   - It takes as few nodes as its tasks need, at least --nodes, in the order of the allocation: nodes that no other
//     step uses if these are enough, else any that have room. So it goes to a later node while an earlier one is busy,
//     also with -N1 or --relative=0, and waits only when there is none; --nodelist names certain nodes. A step counts
//     until its nodes have cleaned up, which may be a moment after srun has returned.
//   - Memory is counted when it is requested; a step without a request may use what the job has.
//   - CPUs, memory and devices of tasks are counted by sched/sizing, as for jobs.
//   - Devices: the requested ones, or else all that the job has on these nodes; none with --gres=none.
//
// A request that the whole allocation could never hold is refused; one that other steps leave no room for is busy.
package steps

// Package pmix is sluice-pmix, the PMIx server of the tasks of a step on one node (srun --mpi=pmix). It connects libpmix, which
// serves MPI libraries such as Open MPI, to the shim.
//
// It is a separate process because libpmix is a large library with threads and sockets that reads data from users' programs. It
// runs as the job's user, in the step's cgroup, and has no more rights than the tasks: an attacker only breaks their own step.
// The shim treats its messages as a user's. Rejected: loading libpmix with dlopen, like NVIDIA's library, because its interface
// is C structures and macros, not only functions.
//
// # Protocol
//
// Descriptor 10 is a socket to the shim, with the frames of package stepwire:
//
//	PmixJob    from the shim, first: the places of the step's tasks
//	PmixReady  to the shim: the variables of this node's tasks, or why there is no server
//	Fence      to the shim: all tasks of this node are in a fence, with their values (one pair); from the shim: the values of all nodes
//	           (a pair for each), or why no fence can succeed any more
//	Modex      both ways: a question for the values of another node's task, and its answer
//	PmixEnd    from the shim: a task has ended
//	Abort      to the shim: end the step
//	Say        to the shim: a line for srun's standard error
//
// It ends when the shim closes the socket. At most one fence across nodes is open at a time. Fences of a subset of the tasks are
// possible if all of them are on this node. Publishing, connecting and spawning are refused (libpmix answers that they are not
// supported).
//
// # Tasks that end
//
// Fences include all tasks, so none can succeed after one has ended. libpmix does not notice that a task is missing which never
// connected, and Open MPI does not check whether a fence has succeeded. So, as with Slurm's plugin, the step is ended where tasks
// would wait for ever: when a connected task ends without MPI_Finalize, when one ends that never connected while others have, and
// when a fence fails that tasks are in. Steps whose tasks are not MPI programs are left alone.
//
// # Who may connect
//
// libpmix listens on a port of the loopback device, and believes the user that a program claims to be. But the program must name
// the namespace of the step, which nobody can guess: the shim derives it from the step's key, which the step's nodes share
// (stepd).
package pmix

// Package pmix is sluice-pmix, the PMIx server of the tasks of a step on one node (srun --mpi=pmix). It puts libpmix, to
// which MPI libraries such as Open MPI talk, between the tasks and the shim.
//
// It is a process of its own because libpmix is a large library with threads and sockets that reads what users' programs
// send. It runs as the job's user, in the cgroup of the step, and has nothing that the tasks have not: whoever breaks it
// breaks their own step. The shim treats its messages as a user's. Rejected: loading libpmix with dlopen, as NVIDIA's
// library is loaded, because its interface is C structures and macros, not only functions.
//
// # Protocol
//
// Descriptor 10 is a socket to the shim, with the frames of package stepwire:
//
//	PmixJob    to it, first: where the tasks of the step are
//	PmixReady  its answer: what its tasks have in their environment, or why there is no server
//	Fence      to the shim: all tasks of this node are at a fence, and what they have put (one pair); from it: what those of all nodes
//	           have put (a pair for each), or why no fence can succeed any more
//	Modex      both ways: a question for what a task of another node has put, and its answer
//	PmixEnd    to it: a task has ended
//	Abort      to the shim: the step is to end
//	Say        to the shim: a line for srun's standard error
//
// It ends when the shim closes the socket. At most one fence over nodes is open at a time; fences of some tasks only are
// possible where all of them are on this node. Publishing, connecting and spawning are refused (libpmix answers that
// they are not supported).
//
// # Tasks that end
//
// Fences are for all tasks, so none can succeed when one has ended. libpmix does not notice when a task that it has
// never heard of is missing, and Open MPI does not check whether a fence has succeeded. So the step is ended where
// others wait in vain, as by Slurm's plugin: when a task ends that was connected and has not said goodbye
// (MPI_Finalize), when one ends that was never connected while others are, and when a fence fails that tasks are at.
// Steps whose tasks are no MPI programs are left alone.
//
// # Who may connect
//
// libpmix listens on a port of the loopback device, and believes a program's claim of its user. The program must name
// the namespace of the step, though, which nobody can guess: the shim derives it from the key of the step, which the
// step's nodes share (stepd).
package pmix

// Package stepd is the shim: the process between the node daemon and one step. It outlives the node daemon, so that a restart of
// the daemon touches no job, and serves one step at a time, so that its own death affects only one. It starts the step's first
// process in a cgroup of its own, ends it at its time limit, applies orders and signals, waits until the cgroup is empty, and
// writes the exit record. Then it takes the next step, because starting a shim costs more than a short job.
//
// # Goroutines
//
//	Main      serves StepAPI on the socket that the node daemon made (fd 3)
//	run       one per step: the only writer of the step's state; everything reaches it as an event
//	launcher  one at a time, on an OS thread of its own: becomes the user, opens the files, forks. It moves to a new thread if a step
//	          needs other namespaces or restrictions (room.go, package private)
//	reap      one per step: waits for its processes
//	listen    srun steps: reads the connection; pump writes each stream to it, and standard input to a task; tellExits
//
// # The launcher's thread
//
// The thread has unshared its file system attributes (umask, working directory) and changes its effective ids by raw system
// calls, which on Linux affect only the calling thread. While its effective uid is the user's, it has no capabilities: the kernel
// applies exactly the user's rights to every path that the user names, on any file system. Real and saved uid stay 0, so that the
// user can neither signal nor trace it. Rejected: fsuid alone, because CAP_SYS_ADMIN stays in effect and files remember the
// capabilities of their opener; a helper process per job, which costs 1–2 ms.
//
// Each step has a new session keyring, created and given to the user while the thread is root: one created as the user would
// belong to root, because the real uid counts. Once the process exists, the thread leaves the job's directory and keyring.
//
// # Holding the first process
//
// Limits must be in force before a process's first instruction. On cgroup v2 the process is cloned into its cgroup. In v1
// hierarchies beside it, it starts where the launcher's thread is at that moment. With v1 alone it is moved, which takes the
// kernel longer. The child requests tracing (PTRACE_TRACEME) and so stops in execve. The launcher sets its limits with
// prlimit(2), writes its pid into its environment (SLURM_TASK_PID), and detaches. The shim's own binary is started first if
// tracing is forbidden, if a TaskProlog must run, or if the interpreter is outside the system's program directories (its file
// system may hang, and vfork would block the whole shim). It starts without the job's environment, waits for a byte, and executes
// the script (trampoline.go).
//
// # Whose fault it is
//
// The verdict separates faults of the job (exited with the errno of execve, output_failed) from faults of the node (node_failed:
// nothing of the step has run). No user can cause the second kind, so a job cannot drain nodes.
//
// # Steps of srun
//
// An srun step (Bundle.step) is the same with several first processes and a connection; the type crew is what it adds to a batch
// job. The shim connects to srun (wire.go), which sends the command. The launcher then opens the files of all tasks as the user,
// and forks one task after the other. A goroutine for each output stream (stream.go) waits until there is something to read, then
// for its turn at the connection, and only then reads. So there is one buffer for any number of tasks, and output that srun does
// not take stays in the pipes. The tasks' input waits in a bounded queue. When it is full, the connection is not read any more,
// but its end is still noticed.
//
// The run's goroutine never waits for the connection or a pipe: srun may be stopped, and a task may not read. The shim's own
// lines go through a teller, as for a job's file. A goroutine sends each task's exit after its last output. The end of the step
// waits for the output, but not for ever once the step is being ended (unheard).
//
// Exits are sent when they happen, the end of the step when the exit record is on disk. A broken connection ends the step, as an
// order would.
//
// # MPI programs
//
// With --mpi=pmi2 each task has a socket, descriptor 10, answered by package pmi with a goroutine for each task. At a fence the
// shim sends the tasks' values to srun on a second connection, made before anything is executed, and receives those of all nodes
// there. A step on one node needs no second connection. An abort is sent on the first connection, and the shim stops its own
// tasks at once. With --mpi=pmix, sluice-pmix answers the tasks. It is a process of the user's in the step; the shim passes its
// messages to the other nodes (crewpmix.go).
//
// # End
//
// The step is reaped until wait4 reports that no child is left. As the shim is a subreaper, no living descendant can hide from
// it. Processes that outlive the first process are killed at once, as in Slurm with proctrack/cgroup. Those that outlive the
// tasks of srun continue for as long as they may write to srun (lingers).
package stepd

// Package stepd is the shim: the process between the node daemon and one step. It outlives the node daemon, so that
// restarting the daemon touches no job, and serves one step at a time, so that its own death touches one job only. It
// starts the step's first process in a cgroup of its own, ends it at its time limit, applies orders and signals, waits
// until the cgroup is empty, and writes the exit record. Then it takes the next step, because starting a shim costs more
// than a short job.
//
// # Goroutines
//
//	Main      serves StepAPI on the socket that the node daemon made (fd 3)
//	run       one per step: the only writer of the step's state; everything reaches it as an event
//	launcher  one at a time, on an OS thread of its own: becomes the user, opens the files, forks. It moves to a new thread where a step
//	          needs other namespaces or restrictions (room.go, package private)
//	reap      one per step: waits for its processes
//	listen    steps of srun: reads the connection; pump writes each stream to it, and standard input to a task; tellExits
//
// # The launcher's thread
//
// It has unshared its file system attributes (umask, working directory) and changes its effective ids by raw system
// calls, which on Linux are per thread. While its effective uid is the user's, it has no capabilities at all: the kernel
// applies exactly the user's rights to every path that the user names, on any file system. Real and saved uid stay 0, so
// that the user can neither signal nor trace it. Rejected: fsuid alone, which keeps CAP_SYS_ADMIN in effect, and files
// remember the capabilities of their opener; a helper process per job, which costs 1–2 ms.
//
// Each step has a new session keyring, given to the user while the thread is root's: one made by the thread as the user
// would be root's, because the real uid counts. When the process has been made, the thread leaves the job's directory
// and keyring.
//
// # Holding the first process
//
// Limits have to be in force before a process's first instruction. It is cloned into its cgroup of v2, and begins in
// those of v1 because the thread that makes it is in them at that moment; with v1 alone it is moved into them, which
// takes the kernel longer. The child asks to be traced (PTRACE_TRACEME) and so stops in execve; the launcher sets its
// limits with prlimit(2), writes its number into its environment (SLURM_TASK_PID), and lets go. Where tracing is
// forbidden, where a TaskProlog has to run, and where the interpreter is outside the system's directories of programs
// (its file system may never answer, and the shim would stand still in vfork), the shim's own binary is started first,
// without the job's environment, waits to be told, and executes the script (trampoline.go).
//
// # Whose fault it is
//
// The verdict separates faults of the job (exited with the errno of execve, output_failed) from faults of the node
// (node_failed: nothing of the step has run). No user can cause the second, so a job cannot drain nodes.
//
// # Steps of srun
//
// A step of srun (Bundle.step) is the same with several first processes and a connection; the type crew is what it has
// beyond a batch job. The shim connects to srun (wire.go), which sends the command; the launcher then opens the files of
// all tasks as the user, and forks one task after the other. The output of tasks is pumped by a goroutine for each
// stream (stream.go): it waits until there is something to read, then for its turn at the connection, and only then
// reads. So there is one buffer, however many tasks there are, and what srun does not take stays in the pipes. The
// tasks' input waits in a queue with a limit; when that is full nothing more is read from the connection, whose end is
// noticed all the same.
//
// Nothing that the run's goroutine does waits for the connection or a pipe: srun may be stopped, and a task may not
// read. Lines of the shim itself go through a teller, as into a job's file. Exits are told by a goroutine that puts each
// behind the last bytes of its task. The end waits for the output, but of a step that is being ended only for a while
// (unheard).
//
// Exits are told when they happen, the end when the exit record is on disk. A connection that breaks ends the step, as
// an order would.
//
// # MPI programs
//
// With --mpi=pmi2 each task has a socket, descriptor 10, and package pmi answers it, a goroutine for each. The shim
// sends the tasks' values at a fence to srun on a connection of its own, made before anything is executed, and receives
// there those of all nodes. A step on one node needs no such connection. An abort is told on the first connection, and
// the shim stops its own tasks at once. With --mpi=pmix the tasks are answered by sluice-pmix, a process of the user's
// in the step, and the shim passes its messages to the other nodes (crewpmix.go).
//
// # End
//
// The step is reaped until wait4 says that there is no child left. As the shim is a subreaper, no living descendant can
// hide from that. What the first process leaves behind is killed at once, as Slurm does with proctrack/cgroup. What
// tasks of srun leave behind continues for as long as it may write to srun (lingers).
package stepd

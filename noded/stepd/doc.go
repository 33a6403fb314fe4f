// Package stepd is the shim: a process between the node daemon and one step. It outlives the node daemon, so that restarting that one
// touches no job, and serves one step at a time, so that its own death touches one job only. It starts the step's first
// process in a cgroup of its own, ends it at its time limit, applies orders and signals, waits until the cgroup is empty, and writes the
// exit record. Then it takes the next step: starting a shim costs more than a short job.
//
// # Goroutines
//
//	Main     serves StepAPI on the socket that the node daemon made (fd 3)
//	run      one per step: the only writer of the step's state; everything reaches it as an event
//	launcher one at a time, on an OS thread of its own: becomes the user, opens the files, forks. It moves to a new thread where a step
//	         needs other namespaces or restrictions (room.go, package private)
//	reap     one per step: waits for its processes
//	of srun  listen reads the connection, pump writes to it for each stream, and to a task for its standard input; tellExits
//
// # The launcher's thread
//
// It has unshared its file system attributes (umask, working folder) and changes its effective ids by raw system calls, which on
// Linux are per thread. While its effective uid is the user's, it has no capabilities at all: the kernel applies exactly the
// user's rights to every path that the user names, on any file system. Real and saved uid stay 0, so that the user can neither
// signal nor trace it. Rejected: fsuid alone keeps CAP_SYS_ADMIN in effect, and files remember the capabilities of their opener;
// a helper process per job costs 1–2 ms.
//
// Its session keyring is a new one for each step, given to the user while the thread is root's: made by the thread as the user it would be
// root's, because the real uid counts. When the process has been made, the thread leaves the job's folder and keyring.
//
// # Holding the first process
//
// Limits have to be there before a process's first instruction. It is cloned into its cgroup of v2, and begins in those of v1 because the
// thread that makes it is in them then; with v1 alone it is moved into them, which takes the kernel longer. The child asks to be traced
// (PTRACE_TRACEME) and so stops in execve; the launcher sets its limits with prlimit(2), writes its number into its environment
// (SLURM_TASK_PID), and lets go. Where tracing is forbidden, where a TaskProlog has to run, and where the
// interpreter is not one of the system's own (its file system may never answer, and the shim would stand still in vfork), the shim's own
// binary is started first, without the job's environment, waits to be told, and executes the script (trampoline.go).
//
// # Steps of srun
//
// A step that srun has made (Bundle.step) is the same with several first processes, and with a connection: crew is what it has beyond a
// batch job. The shim connects to srun (wire.go), which says what to execute; the launcher then opens the files of all tasks as the user,
// and forks one task after the other. What tasks write is pumped by a goroutine for each stream (stream.go): it waits until there is
// something to read, then for its turn at the connection, and only then reads. So there is one buffer, however many tasks there are, and
// what srun does not take stays in the pipes. What tasks read waits in a queue with a bound; when that is full nothing more is read from
// the connection, whose end is noticed all the same.
//
// Nothing that the run's goroutine does waits for the connection or a pipe: srun may be stopped, and a task may not read. The lines that
// the shim says itself go through a teller, as into a job's file; exits are told by a goroutine that puts each behind the last bytes of
// its task; and the end waits for what has been written, but of a step that is being ended only for so long (unheard).
//
// Exits are told when they happen, the end when the exit record is on disk. A connection that breaks ends the step, as an order would.
//
// # MPI programs
//
// With --mpi=pmi2 each task has a socket, descriptor 10, and package pmi answers it, a goroutine for each. What the tasks put at a fence
// the shim sends to srun on a connection of its own, made before anything is executed, and listens there for what all nodes have sent. A
// step on one node needs no such connection. An abort is told on the first connection, and the shim stops its own tasks at once. With
// --mpi=pmix the tasks are answered by sluice-pmix, a process of the user's in the step, and the shim passes on what that says to the
// other nodes (crewpmix.go).
//
// # End
//
// The step is reaped until wait4 says that there is no child left. As the shim is a subreaper, no living descendant can hide from
// that. What the first process leaves behind is killed at once, as Slurm does with proctrack/cgroup. What
// tasks of srun leave behind goes on for as long as it may write to srun (lingers).
package stepd

// Package pmi serves the process management interface of MPI libraries, versions 1 and 2, to the tasks of a step on one
// node: the protocol that MPICH and its derivatives speak on the descriptor that PMI_FD names.
//
// Each task has a socket of its own. Its values are kept until a fence, where all tasks of the step wait for each other;
// then every task can read those of all. The node collects the values of its own tasks. Whoever made the Node brings
// them to the other nodes (Beyond) and returns those of all (Spread). When a task ends, the fences of the others fail,
// because they would wait for ever.
//
// A task may send anything. Requests, stored values and what waits for other nodes have limits; a task that breaks the
// protocol loses the connection, with a line that says why, and nothing else happens. The form of the answers was
// recorded from Slurm 22.05 (testdata).
//
// A goroutine for each task (Serve) reads a request, answers it, and only then reads the next: a task that does not read
// its answers holds up nobody but itself, and nothing queues.
package pmi

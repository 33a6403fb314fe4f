// Package pmi serves the process management interface of MPI libraries, versions 1 and 2, to the tasks of a step on one node: the
// protocol that MPICH and its derivatives speak on the descriptor named by PMI_FD.
//
// Each task has a socket of its own. Its values are kept until a fence, where all tasks of the step wait for each other; then
// every task can read the values of all. The node collects the values of its own tasks. The owner of the Node passes them to the
// other nodes (Beyond) and returns those of all (Spread). When a task ends, the fences of the others fail, because they would
// wait for ever.
//
// Tasks are untrusted. Requests, stored values and the data that waits for other nodes are limited. A task that breaks the
// protocol loses the connection, with a line that gives the reason, and nothing else happens. The format of the answers was
// recorded from Slurm 22.05 (testdata).
//
// A goroutine for each task (Serve) reads a request, answers it, and only then reads the next: a task that does not read its
// answers blocks only itself, and nothing queues.
package pmi

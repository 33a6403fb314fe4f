// Package pmi is the process management interface of MPI libraries, in its versions 1 and 2, for the tasks of a step on one node: what
// MPICH, and what derives from it, says on the descriptor that PMI_FD names.
//
// Each task has a socket of its own. What it puts is kept until a fence, where all tasks of the step wait for each other; then all know
// what all have put. The node collects what its own tasks put. How that reaches the other nodes is the business of who made the Node
// (Beyond), which tells it what all have put (Spread). A task that ends has the others' fences fail: they would wait for ever.
//
// What comes from a task is whatever its program writes. Requests, what is stored and what waits for the other nodes have bounds; who
// breaks the protocol loses the connection, with a line that says why, and nothing else happens. What answers look like was recorded from
// Slurm 22.05 (testdata).
//
// A goroutine for each task (Serve) reads a request, answers it, and only then reads the next: a task that does not read its answers holds
// up nobody but itself, and nothing queues.
package pmi

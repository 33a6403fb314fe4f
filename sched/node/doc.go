// Package node models one node in the scheduler: its free resources over time (Node, with its profile), the needs of a job on it (Need),
// and which cores, devices and instances of devices the job gets.
//
// A Config is the hardware that nodes have in common, and defines the dimensions of their profiles. A Need is computed for a Config, so
// that whether a job fits is a comparison of numbers. Counts decide whether it fits; identity (cores, devices, slices) only matters for
// jobs that start now.
//
// Only package index changes nodes, as jobs start and end; a pass adds its starts and promises through index.
package node

// Package node is one node in the scheduler: what is free on it over time (Node, with its profile), what a job needs of
// it (Need), and which cores, devices and instances of devices the job gets.
//
// A Config is the hardware that nodes share, and defines the dimensions of their profiles. A Need is computed for a
// Config, so that whether a job fits is a comparison of numbers. Counts decide whether it fits; identity (cores,
// devices, slices) matters only for what starts now.
//
// Only package index changes nodes, as jobs start and end; a pass takes what it starts and promises through index.
package node

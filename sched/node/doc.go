// Package node is one node: what is free on it over time (Node, with its profile), what jobs need of it (Need), and which cores, devices
// and instances of devices they get there.
//
// A Config is the hardware that nodes share, and defines the dimensions of their profiles. A Need is worked out for a Config, so that
// whether a job fits is a comparison of numbers. Counts say whether it fits; identity (cores, devices, slices) is considered only for what
// starts now.
//
// Only package index changes nodes, as runs come and go; a pass takes what it starts and promises through index.
package node

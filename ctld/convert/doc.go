// Package convert translates records of the state into records of the scheduler: requests, nodes, partitions. Admission
// and planning read a job's specification through the same functions. Pure.
package convert

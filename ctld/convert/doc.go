// Package convert puts what the state holds in the scheduler's terms: what a job asks for, what nodes have, partitions. Those who
// admit jobs and those who start them read a specification through the same functions. Pure: no clock, no I/O.
package convert

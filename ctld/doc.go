// Package ctld is the controller daemon. Run wires the packages below it; this package decides nothing.
//
// In the order of a submission:
//
//	rpc        receives a call, and decides who may call it
//	admit      fills in defaults and refuses what can never run
//	loop       the single writer: a batch of commands, one commit, publish, answer
//	reactor    command -> events, one file for each verb
//	state      records, tables, events, and the View that everybody reads
//	journal    rows on disk, one commit a batch, backups
//	planner    View -> sched.Plan -> loop, on every change
//	dispatch   the orders for each node, from the View
package ctld

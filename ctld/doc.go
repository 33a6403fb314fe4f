// Package ctld is the controller daemon.
//
// The tour, in the order of a job's way (each folder's own page says more):
//
//	rpc        a call comes in; who is it, and may they?
//	admit      is it a job that can be, and what does it get by default?
//	loop       the single writer: commands in batches, one commit, publish, answer
//	reactor    command -> events: one file per verb
//	state      records, tables, events, the View that everybody reads
//	journal    bbolt underneath: rows, one fsync a batch, backups
//	planner    View -> sched.Plan -> loop, on every change
//	dispatch   what each node should be doing, from the View
//
// Run wires them; this package decides nothing.
package ctld

// Package rpc serves ControllerAPI to commands and NodeAPI to hosts. It turns calls into commands for the writer and Views into answers. It
// decides only who may call what: authz.go is the one authorisation table, and a method without a row there is refused (and fails a test).
//
//	local.go       ttrpc on the unix socket: calls of commands
//	authz.go       the authorisation table
//	service.go     ControllerAPI: writes
//	query.go       ControllerAPI: reads, from the published View alone
//	methods.go     the methods, and which of them take turns (package turns)
//	bounds.go      limits of one call, with answer.go; package frames has those of one connection
//	node.go        NodeAPI: gRPC with mutual TLS
//	relay.go       commands from other hosts
//	enrol.go       joining hosts and renewing certificates
//	listhosts.go   the hosts of the cluster, and their faults
//
// # Local calls
//
// A caller is identified by SO_PEERCRED and SO_PEERGROUPS, read once for each connection. ttrpc passes a handler nothing of its connection
// except the context of Serve, so each connection has a small server of its own. All methods are served as streams (methods.go says why). A
// request is read before it may be refused, because ttrpc answers twice on the stream of a call that ends earlier. The cost of a connection
// is bounded at its frames, before ttrpc has started a goroutine or read a message (package frames).
//
// A request names the fields that its view shows, and the answer is encoded straight from the View with those fields alone: a job has more
// than a hundred, a line of squeue shows eight.
//
// # Relayed calls
//
// local.go identifies the other end of a connection: by the kernel, or by the relay of another host. The authorisation table has a column
// for each. A relay interprets nothing: a stream of RelayAPI is a connection of the same Local server (net.Pipe), so protocol, limits and
// messages are the same by construction. Relays have a gRPC server of their own behind the node port (nodeport.Annex), because gRPC's limit
// of message size holds for a server and nodes send megabytes. A relay has its own connection, so a flood of commands does not delay a
// node's reports.
//
// # The node port
//
// EnrolAPI shares the port of NodeAPI, and accepts connections without a certificate. guard.go asks the authorisation table for every call;
// package nodeport limits the cost of such connections. A certificate is signed before the commit that hands it out, so the writer waits
// for no signature.
//
// # Many nodes
//
// Ten thousand nodes must not wake the controller without need. The kernel finds dead hosts (package tcp); gRPC's own ping comes every two
// minutes and finds hung daemons. gRPC's windows are fixed, because otherwise it pings with each message to measure the connection.
// Heartbeats of all nodes are one command a second for the writer (Beats). A connection has no read buffer in gRPC, since TLS has one, and
// reports have a goroutine only while there are some (intake.go). After a restart all nodes connect at once: nodeport.Door has room for a
// handshake of each. Rejected: TLS session resumption, which saves a third of a handshake; tickets last a week, and streams are older than
// that when a controller restarts.
package rpc

// Package rpc turns calls into commands and views into answers. It decides nothing but who may call what: the one authorisation
// table is authz.go, and a method without a row there is refused (and fails a test).
//
//	local.go       ttrpc on the unix socket; the peer's identity is taken from the kernel once per connection
//	authz.go       the authorisation table
//	service.go     ControllerAPI: writes
//	query.go       ControllerAPI: reads, from the published view alone
//	node.go        NodeAPI: gRPC with mutual TLS; the node's name is that of its certificate
package rpc

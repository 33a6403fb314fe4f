// Package nodeport is the listener of the port for hosts: TLS with certificates of the cluster's authority, and connections without one, so
// that hosts can join. It bounds the cost of connections before a call has been read (door.go, stranger.go), and passes those of relays to
// a server of their own (annex.go). Package rpc has the services.
package nodeport

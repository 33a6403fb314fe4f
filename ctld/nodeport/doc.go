// Package nodeport is the listener of the port for hosts: TLS with certificates of the cluster's authority, and connections without one,
// so that hosts can join. It bounds what connections cost before anybody has read a call (door.go, stranger.go), and hands those of relays
// to a server of their own (annex.go). What is served there is in package rpc.
package nodeport

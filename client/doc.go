// Package client calls the controller over its unix socket.
//
// A Client offers every call of ControllerAPI, and goroutines may share one: each call has exclusive use of a connection. The
// commands use it, and so can any Go program that submits or watches jobs:
//
//	c, err := client.Dial(ctx, socket)
//	reply, err := c.SubmitJob(ctx, request)
//
// An error that the controller returned carries a *msg.Problem (ProblemOf). An error of the connection is a ConnectError: the
// controller was not reached, or went away before it answered. While the controller has no room for a call, the Client waits and
// repeats it (busy.go).
package client

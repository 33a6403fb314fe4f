// Package client speaks to the controller over its unix socket.
//
// A Client is one connection that many goroutines may share; it offers every call of pb.ControllerAPIClient. The commands in
// client/cli use it, and so can any Go program that submits or watches jobs:
//
//	c, err := client.Dial(ctx, socket)
//	reply, err := c.Submit(ctx, request)
//
// Errors that the controller answered with carry a *pb.Problem (ProblemOf). Errors of the connection itself are
// ConnectError: the controller was not reached, or went away before it answered.
package client

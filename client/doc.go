// Package client speaks to the controller over its unix socket.
//
// A Client offers every call of msg.ControllerAPIClient, and many goroutines may share one: a call has a connection for itself
// while it lasts. The commands use it, and so can any Go program that submits or watches jobs:
//
//	c, err := client.Dial(ctx, socket)
//	reply, err := c.SubmitJob(ctx, request)
//
// Errors that the controller answered with carry a *msg.Problem (ProblemOf). Errors of the connection itself are
// ConnectError: the controller was not reached, or went away before it answered.
package client

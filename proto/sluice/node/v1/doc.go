// Package nodepb has the services that hosts call on the controller's node port, and the orders between the two halves of a node
// daemon. It is separate from package pb, which has the nodes' messages, because it links gRPC.
package nodepb

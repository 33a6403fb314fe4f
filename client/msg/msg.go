// Package msg holds the messages of ControllerAPI as plain structs, for programs that start, make a call or two, and
// end.
//
// Types, fields, getters and constants have the names that they have in package pb (proto/sluice/v1), so code can be
// moved from one to the other by its import. A message here encodes itself (Marshal, Unmarshal) without protobuf's
// library, which is not linked: setting up its registry costs a command about as much CPU as its call. Unknown fields
// are dropped. Everything is generated from package pb, and tests compare each message with protobuf's library in both
// directions.
package msg

import "strconv"

//go:generate go run ./gen

// Message is what every message can do.
type Message interface {
	AppendTo([]byte) []byte
	Merge(string) error
}

// Stream is an answer that comes in several messages. It has to be read to its end, or until an error; what is left of it ends
// with its Client.
type Stream[M any] interface {
	// Recv returns the next message; io.EOF is the end.
	Recv() (*M, error)
	// RecvEncoded is Recv for readers that take messages apart themselves.
	RecvEncoded() (string, error)
}

// Upload is a request that goes in several messages.
type Upload[M, R any] interface {
	Send(*M) error
	CloseAndRecv() (*R, error)
}

func valueName(names []string, v int32) string {
	if v >= 0 && int(v) < len(names) && names[v] != "" {
		return names[v]
	}
	return strconv.Itoa(int(v))
}

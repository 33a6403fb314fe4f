// Package msg holds the messages of ControllerAPI as plain structs, for programs that start, make a call or two, and end.
//
// Types, fields, getters and constants have the same names as in package pb (proto/sluice/v1), so changing the import moves code
// from one to the other. Messages encode themselves (Marshal, Unmarshal) without protobuf's library, which is not linked:
// initialising its registry costs a command about as much CPU as its call. Unknown fields are dropped. Everything is generated from
// package pb, and tests compare each message with protobuf's library in both directions.
package msg

import "strconv"

//go:generate go run ./gen

// Message is implemented by every message.
type Message interface {
	AppendTo([]byte) []byte
	Merge(string) error
}

// Stream is an answer in several messages. Read it to its end or to an error; otherwise it stays open until its Client is closed.
type Stream[M any] interface {
	// Recv returns the next message; io.EOF at the end.
	Recv() (*M, error)
	// RecvEncoded is Recv for readers that decode messages themselves.
	RecvEncoded() (string, error)
}

// Upload is a request in several messages.
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

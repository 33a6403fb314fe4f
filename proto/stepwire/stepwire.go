// Package stepwire is the protocol between a node of a step and srun.
//
// Each node connects once per step to one of the addresses at which srun listens. Both sides show the certificate of the step,
// which the controller created for it, and accept no other, so neither talks to anybody else, whatever the host and port. Frames
// then go both ways, each a header of 12 bytes and a payload:
//
//	0      kind
//	1      flags
//	2–3    zero
//	4–7    rank of the task concerned, big endian; All if it concerns no single task
//	8–11   length of the payload, big endian; at most MaxPayload
//
// srun sends the command once all nodes of the step have sent Hello, so that tasks start on all of them or on none.
//
// With --mpi=pmi2 or pmix, each of several nodes makes a second connection, on which its tasks exchange data with those of the
// others (packages noded/stepd/pmi and noded/pmix). On the first one these messages would wait behind standard input that tasks do
// not read, perhaps forever.
//
// Nothing is acknowledged: data that a slow reader does not take fills the connection, and then the pipe of the writing task.
// srun's messages to a node are never delayed by the node's, because each side reads while it writes.
package stepwire

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Kind is the kind of a frame.
type Kind byte

// Kinds. Those below 16 go from node to srun.
const (
	Hello   Kind = 1  // StepHello, first
	Started Kind = 2  // StepStarted: all tasks of the node have started
	Failed  Kind = 3  // StepFailed: none of them will start; Ended follows
	Out     Kind = 4  // standard output of a task, or the terminal of all; no bytes: its end
	Err     Kind = 5  // standard error of a task; no bytes: its end
	Exit    Kind = 6  // StepExit; after the last bytes of a task that closes its output when it ends
	Say     Kind = 7  // a line for srun's standard error: "slurmstepd: error: …", without the newline
	Ended   Kind = 8  // StepEnded: nothing of the step is left on the node, and nothing follows
	Abort   Kind = 15 // a task asks for the end of the whole step (PMI)

	Work   Kind = 16 // StepWork, first; in pieces, the last one with the flag Last
	In     Kind = 17 // standard input of a task, or of all that read it (All); no bytes: its end
	Signal Kind = 18 // StepSignal
	Window Kind = 19 // StepWindow: new size of srun's terminal
	Stop   Kind = 20 // end the step with SIGKILL

	// On a node's second connection, in both directions.
	Fence Kind = 32 // StepFence, in pieces
	Name  Kind = 33 // StepName
	Modex Kind = 34 // PmixModex, in pieces: srun forwards requests to the task's node, and answers to the node that asked

	// Between a shim and its sluice-pmix (package pmix of noded), in addition to Say, Abort, Fence and Modex.
	PmixJob   Kind = 48 // PmixJob, in pieces, to sluice-pmix; first
	PmixReady Kind = 49 // PmixReady, in pieces, from sluice-pmix; its answer
	PmixEnd   Kind = 50 // to sluice-pmix: the task of the header has ended
)

// Last marks the last piece of a message in several frames.
const Last byte = 1

// All means every task, None no task, instead of a rank.
const (
	All  uint32 = 0xffffffff
	None uint32 = 0xfffffffe
)

// MaxPayload bounds a frame. MaxWork bounds the StepWork assembled from its pieces, MaxFence a StepFence, MaxModex a PmixModex.
const (
	MaxPayload = 64 << 10
	MaxWork    = 16 << 20
	MaxFence   = 32 << 20
	MaxModex   = 16 << 20 // data put by one task
)

// HeaderLen is the length of a header.
const HeaderLen = 12

// Header precedes the payload of a frame.
type Header struct {
	Kind  Kind
	Flags byte
	Task  uint32
	Len   uint32
}

// Put writes the header into the first HeaderLen bytes of b, so that a frame can be sent with one write.
func (h Header) Put(b []byte) {
	b[0], b[1], b[2], b[3] = byte(h.Kind), h.Flags, 0, 0
	binary.BigEndian.PutUint32(b[4:], h.Task)
	binary.BigEndian.PutUint32(b[8:], h.Len)
}

// ReadHeader reads the next header. It returns io.EOF if the other side has closed the connection between two frames.
func ReadHeader(r io.Reader) (Header, error) {
	var b [HeaderLen]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return Header{}, err
	}
	h := Header{Kind: Kind(b[0]), Flags: b[1], Task: binary.BigEndian.Uint32(b[4:]), Len: binary.BigEndian.Uint32(b[8:])}
	if h.Len > MaxPayload {
		return h, fmt.Errorf("a frame of %d bytes, %d at most", h.Len, MaxPayload)
	}
	return h, nil
}

// Append appends a frame to b.
func Append(b []byte, kind Kind, flags byte, task uint32, payload []byte) []byte {
	var h [HeaderLen]byte
	Header{Kind: kind, Flags: flags, Task: task, Len: uint32(len(payload))}.Put(h[:])
	return append(append(b, h[:]...), payload...)
}

// AppendPieces appends a message that may be larger than a frame.
func AppendPieces(b []byte, kind Kind, payload []byte) []byte {
	for len(payload) > MaxPayload {
		b = Append(b, kind, 0, All, payload[:MaxPayload])
		payload = payload[MaxPayload:]
	}
	return Append(b, kind, Last, All, payload)
}

var errStranger = errors.New("the other side has not the certificate of this step")

// ReadMessage reads the pieces of a message, at most most bytes in all, and returns it with the header of the last one. It returns
// io.EOF if the other side has closed the connection between two messages, or between two pieces.
func ReadMessage(r io.Reader, most int) (h Header, raw []byte, err error) {
	for kind := Kind(0); ; kind = h.Kind {
		if h, err = ReadHeader(r); err != nil {
			return h, nil, err
		}
		if kind != 0 && h.Kind != kind {
			return h, nil, fmt.Errorf("a frame of kind %d within a message of kind %d", h.Kind, kind)
		}
		at := len(raw)
		if at+int(h.Len) > most {
			return h, nil, fmt.Errorf("a message of more than %d bytes", most)
		}
		raw = slices.Grow(raw, int(h.Len))[:at+int(h.Len)]
		if _, err = io.ReadFull(r, raw[at:]); err != nil {
			return h, nil, err
		}
		if h.Flags&Last != 0 {
			return h, raw, nil
		}
	}
}

// Config is for both sides of a connection: certificate (DER) and key (PKCS #8, DER) of the step are shared by both sides.
func Config(certificate, key []byte) (*tls.Config, error) {
	k, err := x509.ParsePKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("cannot read the key of the step: %w", err)
	}
	same := func(state tls.ConnectionState) error {
		if len(state.PeerCertificates) != 1 || !bytes.Equal(state.PeerCertificates[0].Raw, certificate) {
			return errStranger
		}
		return nil
	}
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: k}},
		ClientAuth:             tls.RequireAnyClientCert,
		InsecureSkipVerify:     true, // no authority is trusted: VerifyConnection compares with the one valid certificate
		VerifyConnection:       same,
		SessionTicketsDisabled: true,
		// All data is sent in bulk, or is small anyway.
		DynamicRecordSizingDisabled: true,
	}, nil
}

// Package wire is a connection to the controller for a command that makes one call, or a few one after another, and ends.
//
// ttrpc's own client starts goroutines, buffers and timers for that, and brings protobuf's library with it, which together
// cost more CPU than the call. wire moves the same bytes itself: each frame is 10 bytes of header (length, stream, type,
// flags; big endian) and a body; a call is a ttrpc.Request on a new odd stream and a ttrpc.Response on the same one; a
// stream carries messages in data frames between or instead of them (ttrpc, PROTOCOL.md).
//
// Reading goes through the runtime's poller: a thread that blocks in read(2) keeps the runtime's monitor awake every 20
// microseconds, which was measured to cost a tenth of a millisecond per millisecond of waiting.
package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/sluice-hpc/sluice/client/submitwire"
)

// ConnectTimeoutS bounds how long connecting may take.
const ConnectTimeoutS = 5

const (
	headerBytes  = 10
	messageBytes = 4 << 20 // ttrpc refuses longer messages
	service      = "sluice.v1.ControllerAPI"

	typeRequest  = 1
	typeResponse = 2
	typeData     = 3

	flagClosed = 1 // this side sends no more
	flagOpen   = 2 // this side will send data
	flagNoData = 4
)

// Conn is one connection. Its calls must not run at the same time.
type Conn struct {
	file   *os.File
	stream uint32
}

// Dial connects to the controller's socket. The error is a *ConnectError.
func Dial(socket string) (*Conn, error) {
	file, err := connect(socket)
	if err != nil {
		return nil, &ConnectError{Socket: socket, Err: err}
	}
	return &Conn{file: file, stream: 1}, nil
}

func connect(socket string) (*os.File, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	timeout := syscall.NsecToTimeval(ConnectTimeoutS * int64(time.Second))
	_ = syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_SNDTIMEO, &timeout)
	for {
		if err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: socket}); err != syscall.EINTR {
			break
		}
	}
	if err == nil {
		err = syscall.SetNonblock(fd, true)
	}
	if err != nil {
		_ = syscall.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), socket), nil
}

// Close ends the connection.
func (c *Conn) Close() error { return c.file.Close() }

// Call makes one unary call with encoded messages. A deadline of ctx is kept; cancelling it has no effect.
func (c *Conn) Call(ctx context.Context, method string, request []byte) ([]byte, error) {
	if err := c.begin(ctx, method, request, 0); err != nil {
		return nil, err
	}
	kind, _, body, err := c.receive()
	if err == nil && kind != typeResponse {
		err = confused(kind)
	}
	if err != nil {
		return nil, err
	}
	c.stream += 2
	return answer(body)
}

// Upload makes a call whose request is a stream of encoded messages.
func (c *Conn) Upload(ctx context.Context, method string, pieces func(send func([]byte) error) error) ([]byte, error) {
	if err := c.begin(ctx, method, nil, flagOpen); err != nil {
		return nil, err
	}
	if err := pieces(func(m []byte) error { return c.send(typeData, 0, m) }); err != nil {
		return nil, err
	}
	if err := c.send(typeData, flagClosed|flagNoData, nil); err != nil {
		return nil, err
	}
	kind, _, body, err := c.receive()
	if err == nil && kind != typeResponse {
		err = confused(kind)
	}
	if err != nil {
		return nil, err
	}
	c.stream += 2
	return answer(body)
}

// Download makes a call that is answered by a stream, and gives each message to each.
func (c *Conn) Download(ctx context.Context, method string, request []byte, each func([]byte) error) error {
	if err := c.begin(ctx, method, request, flagClosed); err != nil {
		return err
	}
	for {
		kind, flags, body, err := c.receive()
		if err != nil {
			return err
		}
		switch {
		case kind == typeResponse:
			c.stream += 2
			_, err := answer(body)
			return err
		case kind != typeData:
			return confused(kind)
		case flags&flagNoData == 0:
			if err := each(body); err != nil {
				return err
			}
		}
		if flags&flagClosed != 0 {
			c.stream += 2
			return nil
		}
	}
}

// begin sends the request frame.
func (c *Conn) begin(ctx context.Context, method string, request []byte, flags byte) error {
	left := int64(0)
	if dl, ok := ctx.Deadline(); ok {
		if left = int64(time.Until(dl)); left <= 0 {
			return context.DeadlineExceeded
		}
		if err := c.file.SetDeadline(dl); err != nil {
			return err
		}
	}
	b := make([]byte, headerBytes, headerBytes+len(request)+128)
	return c.sendFrame(typeRequest, flags, submitwire.AppendCall(b, service, method, request, left))
}

func (c *Conn) send(kind, flags byte, body []byte) error {
	return c.sendFrame(kind, flags, append(make([]byte, headerBytes, headerBytes+len(body)), body...))
}

// sendFrame fills in the header of a frame and writes it with one system call.
func (c *Conn) sendFrame(kind, flags byte, frame []byte) error {
	length := len(frame) - headerBytes
	if length > messageBytes {
		return fmt.Errorf("cannot send a message of %d bytes: the controller takes %d", length, messageBytes)
	}
	binary.BigEndian.PutUint32(frame, uint32(length))
	binary.BigEndian.PutUint32(frame[4:], c.stream)
	frame[8], frame[9] = kind, flags
	if _, err := c.file.Write(frame); err != nil {
		return brokenBy(err)
	}
	return nil
}

func (c *Conn) receive() (kind, flags byte, body []byte, err error) {
	var header [headerBytes]byte
	if _, err := io.ReadFull(c.file, header[:]); err != nil {
		return 0, 0, nil, brokenBy(err)
	}
	length := binary.BigEndian.Uint32(header[:])
	if length > messageBytes || binary.BigEndian.Uint32(header[4:]) != c.stream {
		return 0, 0, nil, confused(header[8])
	}
	body = make([]byte, length)
	if _, err := io.ReadFull(c.file, body); err != nil {
		return 0, 0, nil, brokenBy(err)
	}
	return header[8], header[9], body, nil
}

func confused(kind byte) error {
	return fmt.Errorf("cannot understand the controller's answer (frame type %d): is it a Sluice controller of this version?", kind)
}

// answer is the payload of a response, or the error it carries.
func answer(body []byte) ([]byte, error) {
	status, payload, err := submitwire.Call(body)
	if err != nil || len(status) == 0 {
		return payload, err
	}
	code, text, problem, err := submitwire.Status(status)
	if err != nil {
		return nil, err
	}
	if code == 0 {
		return payload, nil
	}
	return nil, &Refusal{Code: code, Text: text, Problem: problem}
}

// Refusal is an error that the controller answered with.
type Refusal struct {
	Code    int32               // of google.rpc
	Text    string              // message of the status
	Problem *submitwire.Problem // what was wrong, or nil
}

func (e *Refusal) Error() string {
	if p := e.Problem; p != nil {
		text := p.Phrase
		if p.Detail != "" {
			text += ": " + p.Detail
		}
		if p.Hint != "" {
			text += " (" + p.Hint + ")"
		}
		return text
	}
	return e.Text
}

var errBroken = errors.New("the connection to the controller broke before it answered")

// brokenBy marks an error of the connection; a deadline that has passed is not one.
func brokenBy(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return context.DeadlineExceeded
	}
	return fmt.Errorf("%w: %w", errBroken, err)
}

// Broken reports whether err means that there was no connection, or that it ended before the answer came, so that nobody
// knows whether the call took effect.
func Broken(err error) bool {
	var ce *ConnectError
	return errors.Is(err, errBroken) || errors.As(err, &ce)
}

// ConnectError says that no controller answers on the socket.
type ConnectError struct {
	Socket string
	Err    error
}

// Error is Slurm's phrase, then the socket and what would help.
func (e *ConnectError) Error() string { return e.Phrase() + ": " + e.Diagnosis() }

// Phrase is Slurm's text alone.
func (e *ConnectError) Phrase() string { return "Unable to contact slurm controller (connect failure)" }

// Diagnosis names the socket and says what would help.
func (e *ConnectError) Diagnosis() string { return "socket " + e.Socket + ": " + e.advice() }

func (e *ConnectError) advice() string {
	switch {
	case errors.Is(e.Err, os.ErrNotExist):
		return "no such file; is sluice-ctld running on this host, and does SLURM_CONF or SLUICE_SOCKET name the right cluster?"
	case errors.Is(e.Err, syscall.ECONNREFUSED):
		return "nobody listens on it; sluice-ctld has stopped: start it again"
	case errors.Is(e.Err, os.ErrPermission):
		return "permission denied; ask the administrator for access to the socket"
	}
	return e.Err.Error()
}

func (e *ConnectError) Unwrap() error { return e.Err }

// Package wire is a connection to the controller that carries one call after another.
//
// ttrpc's own client starts goroutines, buffers and timers and links protobuf's library, which together cost a command more CPU
// than its call. wire speaks the same protocol itself: each frame is 10 bytes of header (length, stream, type, flags; big endian)
// and a body; a call is a ttrpc.Request on a new odd stream and a ttrpc.Response on the same one; a stream carries messages in data
// frames between or instead of them (ttrpc, PROTOCOL.md).
//
// Reads go through the runtime's poller: a thread that blocks in read(2) wakes the runtime's monitor every 20 microseconds, which
// was measured to cost a tenth of a millisecond per millisecond of waiting.
package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/sluice-hpc/sluice/client/msg"
)

// ConnectTimeoutS bounds how long connecting may take.
const ConnectTimeoutS = 5

const (
	headerBytes  = 10
	messageBytes = 4 << 20 // ttrpc's limit
	service      = "sluice.v1.ControllerAPI"

	typeRequest  = 1
	typeResponse = 2
	typeData     = 3

	flagClosed = 1 // this side sends no more
	flagOpen   = 2 // this side will send data
	flagNoData = 4
)

// Conn is one connection. Its calls must not overlap.
type Conn struct {
	file     *os.File
	stream   uint32
	until    time.Time            // the deadline of the call's context; zero: none
	patience func() time.Duration // how long the controller may stay silent
	dirty    bool                 // a call has not been completed: no other can follow
}

// Dial connects to the controller's socket. The error is a *ConnectError.
func Dial(socket string) (*Conn, error) {
	file, err := connect(socket)
	if err != nil {
		return nil, &ConnectError{Socket: socket, Err: err}
	}
	return &Conn{file: file, stream: 1, patience: sync.OnceValue(messageTimeout)}, nil
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

// Close ends the connection; a call in flight fails.
func (c *Conn) Close() error { return c.file.Close() }

// Usable reports whether another call can follow, because the previous one has been read to its end.
func (c *Conn) Usable() bool { return !c.dirty }

// Call makes one unary call with encoded messages.
func (c *Conn) Call(ctx context.Context, method string, request []byte) (string, error) {
	s, err := c.Open(ctx, method, request)
	if err != nil {
		return "", err
	}
	return s.Answer()
}

// Exchange is a call in progress.
type Exchange struct {
	conn *Conn
	ctx  context.Context
	stop func() bool // detaches ctx from the connection; nil if ctx cannot end
	done bool        // the answer has been read to its end
}

// Open starts a call with one request that is answered by one message (Answer) or by a stream of them (Next).
func (c *Conn) Open(ctx context.Context, method string, request []byte) (*Exchange, error) {
	return c.open(ctx, method, request, 0)
}

// OpenUpload starts a call whose request is a stream of messages: Send, then Answer.
func (c *Conn) OpenUpload(ctx context.Context, method string) (*Exchange, error) {
	return c.open(ctx, method, nil, flagOpen)
}

func (c *Conn) open(ctx context.Context, method string, request []byte, flags byte) (*Exchange, error) {
	if c.dirty {
		return nil, errBroken
	}
	left, err := c.began(ctx)
	if err != nil {
		return nil, err
	}
	c.dirty = true
	x := &Exchange{conn: c, ctx: ctx}
	if ctx.Done() != nil {
		x.stop = context.AfterFunc(ctx, func() { _ = c.file.SetDeadline(time.Unix(1, 0)) })
	}
	b := make([]byte, headerBytes, headerBytes+len(request)+128)
	if err := x.sendFrame(typeRequest, flags, appendCall(b, service, method, request, left, c.alive(method))); err != nil {
		return nil, x.fail(err)
	}
	return x, nil
}

// fail ends the call and with it the connection. If ctx caused the deadline, it returns the error of ctx.
func (x *Exchange) fail(err error) error {
	if x.stop != nil {
		x.stop()
	}
	if errors.Is(err, context.DeadlineExceeded) && x.ctx.Err() != nil {
		return x.ctx.Err()
	}
	return err
}

// end completes a call and frees the connection for the next one. It does not if ctx has just ended, because its effect on the
// connection may still be pending.
func (x *Exchange) end() {
	x.done = true
	if x.stop == nil || x.stop() {
		x.conn.stream += 2
		x.conn.dirty = false
	}
}

// Send sends one message of a stream.
func (x *Exchange) Send(message []byte) error {
	frame := append(make([]byte, headerBytes, headerBytes+len(message)), message...)
	if err := x.sendFrame(typeData, 0, frame); err != nil {
		return x.fail(err)
	}
	return nil
}

// CloseSend ends the stream of messages.
func (x *Exchange) CloseSend() error {
	if err := x.sendFrame(typeData, flagClosed|flagNoData, make([]byte, headerBytes)); err != nil {
		return x.fail(err)
	}
	return nil
}

// Answer returns the answer of a call that has one.
func (x *Exchange) Answer() (string, error) {
	kind, flags, body, err := x.receive()
	for err == nil && kind == typeData && flags == flagNoData { // the call goes on
		kind, flags, body, err = x.receive()
	}
	if err == nil && kind != typeResponse {
		err = confused(kind)
	}
	if err != nil {
		return "", x.fail(err)
	}
	x.end()
	return answer(body)
}

// Next returns the next message of a streamed answer; io.EOF at the end.
func (x *Exchange) Next() (string, error) {
	for !x.done {
		kind, flags, body, err := x.receive()
		if err == nil && kind != typeResponse && kind != typeData {
			err = confused(kind)
		}
		if err != nil {
			return "", x.fail(err)
		}
		if kind == typeResponse || flags&flagClosed != 0 {
			x.end()
		}
		if kind == typeResponse {
			if _, err := answer(body); err != nil {
				return "", err
			}
		} else if flags&flagNoData == 0 {
			return body, nil
		}
	}
	return "", io.EOF
}

// sendFrame fills in the header of a frame and writes it, usually with one system call.
func (x *Exchange) sendFrame(kind, flags byte, frame []byte) error {
	length := len(frame) - headerBytes
	if length > messageBytes {
		return fmt.Errorf("cannot send a message of %d bytes: the controller accepts at most %d", length, messageBytes)
	}
	binary.BigEndian.PutUint32(frame, uint32(length))
	binary.BigEndian.PutUint32(frame[4:], x.conn.stream)
	frame[8], frame[9] = kind, flags
	return x.each(frame, x.conn.file.Write)
}

// receive reads one frame. The body is a string because decoded messages refer to its bytes, which nobody else may change.
func (x *Exchange) receive() (kind, flags byte, body string, err error) {
	var header [headerBytes]byte
	if err := x.each(header[:], x.conn.file.Read); err != nil {
		return 0, 0, "", err
	}
	length := binary.BigEndian.Uint32(header[:])
	if length > messageBytes || binary.BigEndian.Uint32(header[4:]) != x.conn.stream {
		return 0, 0, "", confused(header[8])
	}
	b := make([]byte, length)
	if err := x.each(b, x.conn.file.Read); err != nil {
		return 0, 0, "", err
	}
	return header[8], header[9], unsafe.String(unsafe.SliceData(b), len(b)), nil
}

func confused(kind byte) error {
	return fmt.Errorf("cannot understand the controller's answer (frame type %d): is it a Sluice controller of this version?", kind)
}

// answer returns the payload of a response, or its error.
func answer(body string) (string, error) {
	failure, payload, err := response(body)
	if err != nil || failure == nil {
		return payload, err
	}
	return "", failure
}

// Refusal is an error returned by the controller.
type Refusal struct {
	Code    int32        // of google.rpc
	Text    string       // message of the status
	Problem *msg.Problem // details, or nil
}

func (e *Refusal) Error() string {
	if e.Problem != nil {
		return e.Problem.Error()
	}
	return e.Text
}

// ErrClosed is the error of a call on a closed client.
var ErrClosed = errors.New("cannot call the controller: the connection is closed")

var errBroken = errors.New("the connection to the controller broke before it answered")

// brokenBy marks an error as one of the connection.
func brokenBy(err error) error {
	return fmt.Errorf("%w: %w", errBroken, err)
}

// Broken reports whether err means that there was no connection, or that it ended or timed out before the answer: the call may or
// may not have taken effect.
func Broken(err error) bool {
	var ce *ConnectError
	var te *TimeoutError
	return errors.Is(err, errBroken) || errors.As(err, &ce) || errors.As(err, &te) || Away(err)
}

// Away reports whether err means that this host's daemon cannot reach the controller: the call was not made.
func Away(err error) bool {
	var r *Refusal
	return errors.As(err, &r) && r.Problem != nil && msg.Code(r.Problem.Code) == msg.CodeAway
}

// MayReturn reports whether err means that a controller has been there, but is not listening now.
func MayReturn(err error) bool {
	var ce *ConnectError
	if !errors.As(err, &ce) {
		return false
	}
	if errors.Is(ce.Err, os.ErrNotExist) {
		dir, err := os.Stat(filepath.Dir(ce.Socket))
		return err == nil && dir.IsDir()
	}
	return errors.Is(ce.Err, syscall.ECONNREFUSED)
}

// ConnectError means that no controller answers on the socket.
type ConnectError struct {
	Socket string
	Err    error
}

// Error is Phrase followed by Diagnosis.
func (e *ConnectError) Error() string { return e.Phrase() + ": " + e.Diagnosis() }

// Phrase is Slurm's message.
func (e *ConnectError) Phrase() string { return "Unable to contact slurm controller (connect failure)" }

// Diagnosis names the socket and a remedy.
func (e *ConnectError) Diagnosis() string { return "socket " + e.Socket + ": " + e.advice() }

// remedy depends on whether the user may start the controller: root and the owner of the cluster (sluice up) may.
func (e *ConnectError) remedy() string {
	info, err := os.Stat(filepath.Dir(e.Socket))
	own := err == nil && info.Sys().(*syscall.Stat_t).Uid == uint32(os.Getuid())
	if own || os.Getuid() == 0 {
		return "start it again"
	}
	return "ask your administrator to start it again"
}

func (e *ConnectError) advice() string {
	switch {
	case errors.Is(e.Err, os.ErrNotExist):
		return "no such file; is sluice-ctld running on this host, or on others sluice-noded, and does SLURM_CONF or SLUICE_SOCKET name " +
			"the right cluster?"
	case errors.Is(e.Err, syscall.ECONNREFUSED):
		if filepath.Base(e.Socket) == "relay.sock" {
			return "no process listens on it; sluice-noded, which connects this host with the controller, has stopped: " + e.remedy()
		}
		return "no process listens on it; sluice-ctld has stopped: " + e.remedy()
	case errors.Is(e.Err, syscall.EAGAIN):
		return fmt.Sprintf("no connection within %d seconds; sluice-ctld is suspended, or its machine is overloaded", ConnectTimeoutS)
	case errors.Is(e.Err, os.ErrPermission):
		return "permission denied; ask your administrator for access to the socket"
	}
	return e.Err.Error()
}

func (e *ConnectError) Unwrap() error { return e.Err }

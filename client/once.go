package client

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-hpc/sluice/client/submitwire"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// A command makes one call and ends. ttrpc's own client starts goroutines, a poller and buffers for that, which costs more
// CPU than the call; wire moves the same bytes itself: 10 bytes of header (length, stream, type, flags;
// big endian), then a ttrpc.Request or ttrpc.Response in protobuf encoding (ttrpc's PROTOCOL.md).
//
// Reading goes through the runtime's poller: a thread that blocks in read(2) keeps the runtime's monitor awake every 20
// microseconds, which was measured to cost a tenth of a millisecond per millisecond of waiting.
type wire struct {
	conn   *os.File
	stream uint32
}

const (
	wireHeaderBytes  = 10
	wireRequest      = 1
	wireResponse     = 2
	wireMessageBytes = 4 << 20 // ttrpc refuses longer messages
	service          = "sluice.v1.ControllerAPI"
)

// Numbers of the fields of ttrpc.Request and ttrpc.Response.
const (
	fieldService, fieldMethod, fieldPayload, fieldTimeout = 1, 2, 3, 4
	fieldStatus, fieldReply                               = 1, 2
)

// errBroken says that the connection ended before the answer came.
var errBroken = errors.New("the connection to the controller broke before it answered")

func dialWire(socket string) (*wire, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	timeout := syscall.NsecToTimeval(ConnectTimeoutS * int64(time.Second))
	_ = syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_SNDTIMEO, &timeout)
	for {
		err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: socket})
		if err != syscall.EINTR {
			break
		}
	}
	if err != nil {
		_ = syscall.Close(fd)
		return nil, err
	}
	_ = syscall.SetNonblock(fd, true)
	return &wire{conn: os.NewFile(uintptr(fd), socket), stream: 1}, nil
}

func (w *wire) close() error { return w.conn.Close() }

// call makes one unary call. A deadline of ctx is kept; cancelling it has no effect.
func (w *wire) call(ctx context.Context, method string, req, resp proto.Message) error {
	payload, err := proto.Marshal(req)
	if err != nil {
		return fmt.Errorf("cannot encode the %s request: %w", method, err)
	}
	answer, err := w.exchange(ctx, method, payload)
	if err != nil {
		return err
	}
	return proto.Unmarshal(answer, resp)
}

// submit is call for Submit, with the encoding that needs no reflection.
func (w *wire) submit(ctx context.Context, req *pb.SubmitRequest) (*pb.SubmitReply, error) {
	payload := submitwire.AppendRequest(make([]byte, 0, submitBytes(req)), req)
	answer, err := w.exchange(ctx, "Submit", payload)
	if err != nil {
		return nil, err
	}
	reply := &pb.SubmitReply{}
	return reply, submitwire.Reply(answer, reply)
}

// exchange sends an encoded request and returns the encoded reply.
func (w *wire) exchange(ctx context.Context, method string, payload []byte) ([]byte, error) {
	if err := w.setDeadline(ctx); err != nil {
		return nil, err
	}
	if err := w.send(w.request(ctx, method, payload)); err != nil {
		return nil, err
	}
	answer, err := w.receive()
	if err != nil {
		return nil, err
	}
	return decodeAnswer(answer)
}

func (w *wire) setDeadline(ctx context.Context) error {
	dl, ok := ctx.Deadline()
	if !ok {
		return nil
	}
	return w.conn.SetDeadline(dl)
}

// request is header and message in one piece, so that it leaves with one system call.
func (w *wire) request(ctx context.Context, method string, payload []byte) []byte {
	b := make([]byte, wireHeaderBytes, wireHeaderBytes+len(payload)+len(service)+len(method)+32)
	b = protowire.AppendString(protowire.AppendTag(b, fieldService, protowire.BytesType), service)
	b = protowire.AppendString(protowire.AppendTag(b, fieldMethod, protowire.BytesType), method)
	b = protowire.AppendBytes(protowire.AppendTag(b, fieldPayload, protowire.BytesType), payload)
	if dl, ok := ctx.Deadline(); ok {
		b = protowire.AppendVarint(protowire.AppendTag(b, fieldTimeout, protowire.VarintType), uint64(time.Until(dl)))
	}
	binary.BigEndian.PutUint32(b, uint32(len(b)-wireHeaderBytes))
	binary.BigEndian.PutUint32(b[4:], w.stream)
	b[8], b[9] = wireRequest, 0
	return b
}

func (w *wire) send(b []byte) error {
	if len(b) > wireMessageBytes {
		return fmt.Errorf("cannot send a request of %d bytes: a message holds %d", len(b), wireMessageBytes)
	}
	if _, err := w.conn.Write(b); err != nil {
		return brokenBy(err)
	}
	return nil
}

// receive returns the body of the answer on this stream.
func (w *wire) receive() ([]byte, error) {
	var header [wireHeaderBytes]byte
	if err := w.readFull(header[:]); err != nil {
		return nil, err
	}
	length := binary.BigEndian.Uint32(header[:])
	stream := binary.BigEndian.Uint32(header[4:])
	if length > wireMessageBytes || header[8] != wireResponse || stream != w.stream {
		return nil, fmt.Errorf("cannot understand the controller's answer (length %d, stream %d, type %d): is it a Sluice controller of this version?", length, stream, header[8])
	}
	w.stream += 2
	body := make([]byte, length)
	return body, w.readFull(body)
}

func (w *wire) readFull(p []byte) error {
	if _, err := io.ReadFull(w.conn, p); err != nil {
		return brokenBy(err)
	}
	return nil
}

// brokenBy marks an error of the connection; a deadline that has passed is not one.
func brokenBy(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return context.DeadlineExceeded
	}
	return fmt.Errorf("%w: %w", errBroken, err)
}

// decodeAnswer splits a ttrpc.Response by hand: its generated code would first have to load google.rpc.Status.
func decodeAnswer(b []byte) (payload []byte, err error) {
	var failure []byte
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, fmt.Errorf("cannot decode the controller's answer: %w", protowire.ParseError(n))
		}
		b = b[n:]
		size := protowire.ConsumeFieldValue(num, typ, b)
		if size < 0 {
			return nil, fmt.Errorf("cannot decode the controller's answer: %w", protowire.ParseError(size))
		}
		if typ == protowire.BytesType {
			v, _ := protowire.ConsumeBytes(b)
			switch num {
			case fieldStatus:
				failure = v
			case fieldReply:
				payload = v
			}
		}
		b = b[size:]
	}
	if len(failure) > 0 {
		st := &spb.Status{}
		if err := proto.Unmarshal(failure, st); err != nil {
			return nil, fmt.Errorf("cannot decode the controller's refusal: %w", err)
		}
		if st.GetCode() != 0 {
			return nil, status.ErrorProto(st)
		}
	}
	return payload, nil
}

package relay

import (
	"encoding/binary"
	"io"
	"net"
	"time"

	"github.com/containerd/ttrpc"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// The framing of ttrpc (PROTOCOL.md): length, stream, type and flags, then the payload.
const (
	frameHeader  = 10
	frameRequest = 1
	frameAnswer  = 2
	// refusalPatience is how long a refused command may take to send its request and read the answer.
	refusalPatience = 2 * time.Second
)

// refuse answers a connection's first request with p, in place of the controller. first holds the bytes already read. The rest is
// read and discarded: if the socket closed earlier, the command would fail while it writes.
func refuse(c *net.UnixConn, first []byte, p *pb.Problem) {
	if c.SetDeadline(time.Now().Add(refusalPatience)) != nil {
		return
	}
	head := make([]byte, frameHeader)
	if n := copy(head, first); n < frameHeader {
		if _, err := io.ReadFull(c, head[n:]); err != nil {
			return
		}
	}
	if head[8] != frameRequest {
		return
	}
	answer, err := frame(binary.BigEndian.Uint32(head[4:]), p)
	if err != nil {
		return
	}
	if _, err := c.Write(answer); err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, c)
}

// frame returns a ttrpc answer that reports a failed call.
func frame(stream uint32, p *pb.Problem) ([]byte, error) {
	st := status.New(codes.Unavailable, p.Error())
	if with, err := st.WithDetails(p); err == nil {
		st = with
	}
	body, err := proto.Marshal(&ttrpc.Response{Status: st.Proto()})
	if err != nil {
		return nil, err
	}
	b := make([]byte, frameHeader, frameHeader+len(body))
	binary.BigEndian.PutUint32(b, uint32(len(body)))
	binary.BigEndian.PutUint32(b[4:], stream)
	b[8] = frameAnswer
	return append(b, body...), nil
}

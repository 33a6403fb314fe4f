package frames

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"testing"
)

// BenchmarkConn measures the cost of a connection's bounds: calls over a Unix socket, with request and answer of the same size, on a bare
// and on a bounded connection. The other side is the same for both.
func BenchmarkConn(b *testing.B) {
	for _, size := range []int{64, 4 << 10, 64 << 10, 1 << 20} {
		for _, kind := range []string{"bare", "bounded"} {
			b.Run(fmt.Sprintf("%s/%d", kind, size), func(b *testing.B) { benchmarkConn(b, kind == "bounded", size) })
		}
	}
}

func benchmarkConn(b *testing.B, bound bool, size int) {
	l, err := net.Listen("unix", filepath.Join(b.TempDir(), "s"))
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	near, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer near.Close()
	far, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	if bound {
		far = NewConn(far, &User{reading: newBudget(1 << 30), calls: make(chan struct{}, clearLag)})
	}
	defer far.Close()
	answered := make(chan error, 1)
	go func() { answered <- answerFrames(far, size) }()
	frame := make([]byte, HeaderBytes+size)
	binary.BigEndian.PutUint32(frame, uint32(size))
	frame[8] = KindRequest
	back := make([]byte, len(frame))
	b.SetBytes(int64(2 * len(frame)))
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		binary.BigEndian.PutUint32(frame[4:], uint32(2*i+1))
		if _, err := near.Write(frame); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(near, back); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	near.Close()
	if err := <-answered; err != nil {
		b.Fatal(err)
	}
}

// answerFrames reads frames as ttrpc does, header and content, and sends each back as an answer.
func answerFrames(c net.Conn, size int) error {
	frame := make([]byte, HeaderBytes+size)
	for {
		if _, err := io.ReadFull(c, frame[:HeaderBytes]); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if _, err := io.ReadFull(c, frame[HeaderBytes:]); err != nil {
			return err
		}
		frame[8], frame[9] = KindAnswer, LastMessage
		if _, err := c.Write(frame); err != nil {
			return err
		}
	}
}

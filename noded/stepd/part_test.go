package stepd

import (
	"crypto/tls"
	"io"
	"net"
	"testing"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"

	"github.com/sluice-hpc/sluice/noded/sruntest"
	"github.com/sluice-hpc/sluice/proto/stepwire"
)

// TestLastWordsArrive: a srun that reads slowly, and has sent something that nobody has read, gets all that was printed before the end.
func TestLastWordsArrive(t *testing.T) {
	conf, err := stepwire.Config(sruntest.Certificate(t))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	srun := make(chan *tls.Conn, 1)
	go func() {
		raw, err := l.Accept()
		if err != nil {
			return
		}
		_ = raw.(*net.TCPConn).SetReadBuffer(64 << 10) // most of what comes waits at the sender
		conn := tls.Server(raw, conf)
		if _, err := conn.Write(stepwire.Append(nil, stepwire.In, 0, 0, []byte("unread\n"))); err != nil {
			t.Error(err)
		}
		srun <- conn
	}()
	conn, err := dial(t.Context(), l.Addr().String(), conf)
	if err != nil {
		t.Fatal(err)
	}
	// Everything that is printed here waits in the kernel: its default for the most that a socket may hold (net.core.wmem_max) is 208 KiB.
	_ = conn.NetConn().(*batch).Conn.(*net.TCPConn).SetWriteBuffer(208 << 10)
	c := &crew{wire: newWire(conn)}
	from := <-srun
	defer from.Close()
	const frames = 15
	line := make([]byte, 10_000)
	for range frames {
		if err := c.wire.frame(stepwire.Out, 0, line); err != nil {
			t.Fatal(err)
		}
	}
	c.part(&pb.ExitRecord{Verdict: "exited"}, false)
	printed := 0
	for {
		h, err := stepwire.ReadHeader(from)
		if err != nil {
			t.Fatalf("after %d bytes: %v", printed, err)
		}
		if _, err := io.ReadFull(from, make([]byte, h.Len)); err != nil {
			t.Fatal(err)
		}
		if h.Kind == stepwire.Ended {
			break
		}
		printed += int(h.Len)
	}
	if printed != frames*len(line) {
		t.Errorf("%d bytes have come of %d", printed, frames*len(line))
	}
}

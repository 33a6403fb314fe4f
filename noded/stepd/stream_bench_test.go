package stepd

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/noded/sruntest"
	"github.com/sluice-hpc/sluice/proto/stepwire"
)

// The output of a task on its way to srun: one goes through pump, the other is the least that a pipe and TLS cost. Both have a program that
// writes, and a goroutine of this process that reads and throws away. MB/s depend on what else the machine does; cpu-ms/GB are what this
// process, both ends of the connection, has used.
//
//	go test ./noded/stepd -run '^$' -bench 'Output|PipeAndTLS' -benchtime 3x -count 5

// outputBytes is what goes through in one round.
const outputBytes = 1 << 30

func BenchmarkOutput(b *testing.B) {
	for _, tasks := range []int{1, 64} {
		b.Run(fmt.Sprintf("tasks=%d", tasks), func(b *testing.B) {
			conn := toNowhere(b)
			w := newWire(conn)
			measured(b, func() {
				done := make(chan struct{})
				for range tasks {
					s := newStream(stepwire.Out, 0, writes(b, outputBytes/tasks))
					go func() {
						s.pump(w)
						done <- struct{}{}
					}()
				}
				for range tasks {
					<-done
				}
			})
		})
	}
}

func BenchmarkPipeAndTLS(b *testing.B) {
	conn := toNowhere(b)
	buf := make([]byte, stepwire.MaxPayload)
	measured(b, func() {
		if _, err := io.CopyBuffer(plainWriter{conn}, plainReader{writes(b, outputBytes)}, buf); err != nil {
			b.Fatal(err)
		}
	})
}

type plainReader struct{ io.Reader }

// measured runs rounds.
func measured(b *testing.B, round func()) {
	b.SetBytes(outputBytes)
	before := cpuTime(b)
	for b.Loop() {
		round()
	}
	b.ReportMetric(float64(cpuTime(b)-before)/1e6/float64(b.N)/(outputBytes/1e9), "cpu-ms/GB")
	b.ReportMetric(0, "ns/op")
}

func cpuTime(b *testing.B) int64 {
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		b.Fatal(err)
	}
	return ru.Utime.Nano() + ru.Stime.Nano()
}

// writes is the pipe of a program that writes so much.
func writes(b *testing.B, n int) *os.File {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		b.Fatal(err)
	}
	_ = unix.SetNonblock(p[0], true)
	widen(p[0], outputBytes/n)
	w := os.NewFile(uintptr(p[1]), "pipe")
	defer w.Close()
	cmd := exec.Command("head", "-c", fmt.Sprint(n), "/dev/zero")
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = cmd.Wait() })
	return os.NewFile(uintptr(p[0]), "pipe")
}

// toNowhere is a connection whose other side reads.
func toNowhere(b *testing.B) *tls.Conn {
	conf, err := stepwire.Config(sruntest.Certificate(b))
	if err != nil {
		b.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	go func() {
		raw, err := l.Accept()
		if err != nil {
			return
		}
		conn := tls.Server(raw, conf)
		buf := make([]byte, stepwire.MaxPayload)
		for err == nil {
			_, err = conn.Read(buf)
		}
		_ = raw.Close()
	}()
	conn, err := dial(b.Context(), l.Addr().String(), conf)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.NetConn().Close() })
	return conn
}

package stepio

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"os"
	"syscall"
	"testing"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/proto/stepwire"
)

// BenchmarkPrint is the output of a task from its node to srun's standard output, which is nothing; both ends of the connection are this
// process, which has used cpu-ms/GB.
//
//	go test ./client/stepio -run '^$' -bench Print -benchtime 3x -count 5
func BenchmarkPrint(b *testing.B) {
	const bytes = 1 << 30
	cert, key := certificate(b)
	config, err := stepwire.Config(cert, key)
	if err != nil {
		b.Fatal(err)
	}
	listen, err := Listen("")
	if err != nil {
		b.Fatal(err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer null.Close()
	w := &counts{closed: make(chan struct{})}
	step := &msg.StepRecord{Certificate: cert, Key: key, NumTasks: 1, Nodes: []*msg.StepNode{{Node: "n1", Tasks: []uint32{0}}}}
	s, err := New(listen, step, &msg.StepWork{}, NewOutput(NewSink(null, 1, -1, false, false), nil), w)
	if err != nil {
		b.Fatal(err)
	}
	s.Accept()
	defer s.Close()
	conn, err := tls.Dial("tcp", listen.Addresses()[len(listen.Addresses())-1], config)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(stepwire.Append(nil, stepwire.Hello, 0, stepwire.All, nil)); err != nil {
		b.Fatal(err)
	}
	frame := stepwire.Append(nil, stepwire.Out, 0, 0, make([]byte, stepwire.MaxPayload-stepwire.HeaderLen))
	end := stepwire.Append(nil, stepwire.Out, 0, 0, nil)
	b.SetBytes(bytes)
	before := used(b)
	for b.Loop() {
		for sent := 0; sent < bytes; sent += len(frame) {
			if _, err := conn.Write(frame); err != nil {
				b.Fatal(err)
			}
		}
		if _, err := conn.Write(end); err != nil {
			b.Fatal(err)
		}
		<-w.closed
	}
	b.ReportMetric(float64(used(b)-before)/1e6/float64(b.N)/(bytes/1e9), "cpu-ms/GB")
	b.ReportMetric(0, "ns/op")
}

// counts is a watcher that hears of ends of streams.
type counts struct{ closed chan struct{} }

func (*counts) Connected(int)               {}
func (*counts) Started(int)                 {}
func (*counts) Failed(int, *msg.StepFailed) {}
func (*counts) Exit(int, *msg.StepExit)     {}
func (*counts) Abort(uint32)                {}
func (c *counts) Closed(uint32, bool)       { c.closed <- struct{}{} }
func (*counts) Say(int, string)             {}
func (*counts) Ended(int, *msg.StepEnded)   {}
func (*counts) Lost(int, error)             {}
func (*counts) Unwritable(error)            {}

func used(b *testing.B) int64 {
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		b.Fatal(err)
	}
	return ru.Utime.Nano() + ru.Stime.Nano()
}

func certificate(b *testing.B) (cert, key []byte) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	t := &x509.Certificate{SerialNumber: big.NewInt(1)}
	if cert, err = x509.CreateCertificate(rand.Reader, t, t, k.Public(), k); err == nil {
		key, err = x509.MarshalPKCS8PrivateKey(k)
	}
	if err != nil {
		b.Fatal(err)
	}
	return cert, key
}

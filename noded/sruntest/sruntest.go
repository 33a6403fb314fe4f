// Package sruntest simulates srun for tests of nodes: it accepts a node's connection, sends a command, and collects the
// answers.
package sruntest

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/proto/stepwire"
)

// Certificate returns a certificate like the controller's for a step.
func Certificate(t testing.TB) (certificate, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "step"}, NotAfter: time.Now().Add(time.Hour)}
	if certificate, err = x509.CreateCertificate(rand.Reader, c, c, k.Public(), k); err == nil {
		key, err = x509.MarshalPKCS8PrivateKey(k)
	}
	if err != nil {
		t.Fatal(err)
	}
	return certificate, key
}

// Srun simulates the command: it accepts one node's connection, sends the work, and collects the answers.
type Srun struct {
	Listener net.Listener
	Work     *pb.StepWork

	t    testing.TB
	conf *tls.Config

	mu      sync.Mutex
	changed *sync.Cond
	over    bool

	// Received so far; access within Await and Set, or after the end of the step.
	Conn    *tls.Conn
	Out     map[string]*bytes.Buffer // by "out 3", "err 0"
	Closed  map[string]bool
	Said    []string
	Exits   map[uint32]*pb.StepExit
	Frames  []stepwire.Kind // without Out and Err
	Started *pb.StepStarted
	Failed  *pb.StepFailed
	Ended   *pb.StepEnded
	Stall   bool // stop reading
}

// New listens for the node of a bundle, and adds certificate and address to it.
func New(t testing.TB, b *pb.Bundle, work *pb.StepWork) *Srun {
	t.Helper()
	cert, key := Certificate(t)
	b.Step.Certificate, b.Step.Key = cert, key
	conf, err := stepwire.Config(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	b.Step.Addresses = []string{l.Addr().String()}
	s := &Srun{t: t, Listener: l, conf: conf, Work: work, Out: map[string]*bytes.Buffer{}, Closed: map[string]bool{},
		Exits: map[uint32]*pb.StepExit{}}
	s.changed = sync.NewCond(&s.mu)
	go s.serve()
	return s
}

// Use makes it present the certificate of another step.
func (s *Srun) Use(of *pb.StepTasks) error {
	conf, err := stepwire.Config(of.Certificate, of.Key)
	s.Set(func() { s.conf = conf })
	return err
}

func (s *Srun) serve() {
	raw, err := s.Listener.Accept()
	if err != nil {
		return
	}
	var conf *tls.Config
	s.Set(func() { conf = s.conf })
	conn := tls.Server(raw, conf)
	defer conn.Close()
	defer s.Set(func() { s.over = true })
	for {
		h, err := stepwire.ReadHeader(conn)
		if err != nil {
			return
		}
		b := make([]byte, h.Len)
		if _, err := io.ReadFull(conn, b); err != nil {
			return
		}
		if h.Kind == stepwire.Hello {
			raw, _ := proto.Marshal(s.Work)
			if s.Work == nil { // an sattach
			} else if _, err := conn.Write(stepwire.AppendPieces(nil, stepwire.Work, raw)); err != nil {
				return
			}
			s.Set(func() { s.Conn = conn })
			continue
		}
		s.Set(func() { s.take(h, b) })
		s.mu.Lock()
		for s.Stall {
			s.changed.Wait()
		}
		s.mu.Unlock()
	}
}

func (s *Srun) take(h stepwire.Header, b []byte) {
	name := map[stepwire.Kind]string{stepwire.Out: "out ", stepwire.Err: "err "}[h.Kind] + fmt.Sprint(h.Task)
	if h.Kind != stepwire.Out && h.Kind != stepwire.Err {
		s.Frames = append(s.Frames, h.Kind)
	}
	if s.Ended != nil {
		s.t.Errorf("a frame %d after Ended", h.Kind)
	}
	read := func(m proto.Message) {
		if err := proto.Unmarshal(b, m); err != nil {
			s.t.Error(err)
		}
	}
	switch h.Kind {
	case stepwire.Out, stepwire.Err:
		if s.Closed[name] {
			s.t.Errorf("%s goes on after its end", name)
		}
		if len(b) == 0 {
			s.Closed[name] = true
		}
		if s.Out[name] == nil {
			s.Out[name] = &bytes.Buffer{}
		}
		s.Out[name].Write(b)
	case stepwire.Started:
		s.Started = &pb.StepStarted{}
		read(s.Started)
	case stepwire.Failed:
		s.Failed = &pb.StepFailed{}
		read(s.Failed)
	case stepwire.Exit:
		x := &pb.StepExit{}
		read(x)
		for _, task := range x.Tasks {
			if s.Exits[task] != nil {
				s.t.Errorf("task %d has ended twice", task)
			}
			s.Exits[task] = x
		}
	case stepwire.Say:
		s.Said = append(s.Said, string(b))
	case stepwire.Ended:
		s.Ended = &pb.StepEnded{}
		read(s.Ended)
	}
}

// Set changes fields under the lock.
func (s *Srun) Set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	s.changed.Broadcast()
}

// Await waits for a state.
func (s *Srun) Await(what string, ok func() bool) {
	s.t.Helper()
	late := time.AfterFunc(2*time.Minute, func() { s.Set(func() { s.over = true }) })
	defer late.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for !ok() {
		if s.over {
			s.t.Fatalf("never: %s; frames %v, said %q, ended %v", what, s.Frames, s.Said, s.Ended)
		}
		s.changed.Wait()
	}
}

// Send sends a frame.
func (s *Srun) Send(kind stepwire.Kind, task uint32, b []byte) {
	s.t.Helper()
	s.Await("a connection", func() bool { return s.Conn != nil })
	if _, err := s.Conn.Write(stepwire.Append(nil, kind, 0, task, b)); err != nil {
		s.t.Error(err)
	}
}

// SendMessage sends a message.
func (s *Srun) SendMessage(kind stepwire.Kind, m proto.Message) {
	raw, _ := proto.Marshal(m)
	s.Send(kind, stepwire.All, raw)
}

// Text returns the output of a stream so far.
func (s *Srun) Text(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Out[name] == nil {
		return ""
	}
	return s.Out[name].String()
}

// Package bcast copies a file to the nodes of a job, for sbcast and srun --bcast.
//
// It creates a step with one task per node, which executes no program but receives the file as the user (noded/stepd). Identity,
// back-pressure and cleanup are therefore those of steps. Each node gets the file from here over its own connection, several nodes
// at a time. A node either has the complete file, verified by checksum, or none. Such a step shares all resources with the job's
// other steps and is not listed.
//
// Rejected: a tree of nodes, in which nodes wait for the disks of others and must trust each other's certificates; writing by the
// node daemon, which would follow users' paths.
package bcast

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/klauspost/compress/s2"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/stepio"
	"github.com/sluice-hpc/sluice/client/submission"
	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/proto/stepwire"
)

// DefaultFanout is the number of nodes to which a file is sent at a time.
const DefaultFanout = 8

// blockBytes is the size of reads from the file.
const blockBytes = 256 << 10

// Job is the target of copies.
type Job struct {
	Env     *command.Env
	Sender  *submission.Sender
	Client  *client.Client
	ID      uint32
	Nodes   []string
	Ports   string           // SrunPortRange
	Signals <-chan os.Signal // those that end the copy
	Fanout  int              // nodes served at a time; 0 = DefaultFanout
	Timeout time.Duration    // how long a node may accept no data; 0 = forever
	Verbose bool             // print the nodes' own messages
}

// File is a file to copy.
type File struct {
	Path     string // for errors
	From     *os.File
	To       string // absolute
	Force    bool
	Preserve bool
	Compress bool
	ByNode   bool // each node appends "_" and its name to To
	Folder   bool // create the directory of To
	Numbered bool // append a dot and the number of the copy in the job to To
}

// Failure reports that nodes did not get a file. Each has already been reported in a line of its own.
type Failure struct{ Errno int }

func (f *Failure) Error() string { return syscall.Errno(f.Errno).Error() }

// Copy copies a file to all nodes.
func (j *Job) Copy(ctx context.Context, f *File) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	info, err := f.From.Stat()
	if err != nil {
		return err
	}
	listen, err := stepio.Listen(j.Ports)
	if err != nil {
		return err
	}
	defer listen.Close()
	record, err := j.create(ctx, listen.Addresses())
	if err != nil {
		return err
	}
	if f.Numbered {
		f.To += "." + strconv.Itoa(int(record.GetStepId()-msg.CopyStep))
	}
	t := newTransfer(j, f, record, info)
	var said *stepio.Sink
	if j.Verbose {
		said = stepio.NewSink(j.Env.Stderr, record.GetNumTasks(), -1, true, false)
	}
	out := stepio.NewOutput(nil, said)
	if t.session, err = stepio.New(listen, record, t.work(), out, t); err != nil {
		t.cancel()
		return err
	}
	t.session.Accept()
	defer t.session.Close()
	err = t.run(ctx)
	_ = out.Flush()
	return err
}

// pollWait is how long the controller holds a request for a job that cannot have steps at the moment.
const pollWait = 20 * time.Second

// create creates the step.
func (j *Job) create(ctx context.Context, addresses []string) (*msg.StepRecord, error) {
	id, err := submission.RandomID()
	if err != nil {
		return nil, err
	}
	n := uint32(len(j.Nodes))
	names := slices.Sorted(slices.Values(j.Nodes))
	req := &msg.CreateStepRequest{JobId: j.ID, RequestId: id, Spec: &msg.StepSpec{Name: "sbcast", Copy: true, Overlap: true, NumTasks: n,
		MinNodes: n, MaxNodes: n, NtasksPerNode: 1, NoGres: true, ReqNodes: hostlist.FoldSorted(names), Relative: -1, CpuBind: "none",
		Mpi: "none", SubmitLine: strings.Join(j.Env.Args, " "), Addresses: addresses,
		Host: command.ShortHostname(), Pid: uint32(os.Getpid())}}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for told := false; ; req.WaitMs = uint32(pollWait.Milliseconds()) {
		reply, err := j.ask(ctx, req)
		if err != nil || reply.GetStep() != nil {
			return reply.GetStep(), err
		}
		if !told {
			told = true
			j.Env.Infof("Job %d step creation temporarily disabled, retrying (%s)", j.ID, reply.GetBusy().GetPhrase())
		}
	}
}

// ask makes one call, which a signal interrupts.
func (j *Job) ask(ctx context.Context, req *msg.CreateStepRequest) (reply *msg.CreateStepReply, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		reply, err = submission.Patiently(ctx, j.Sender, func() (*msg.CreateStepReply, error) { return j.Client.CreateStep(ctx, req) })
	}()
	for {
		select {
		case <-done:
			return reply, err
		case s := <-j.Signals:
			if n, ok := ends(s); ok {
				return nil, &submission.Interrupted{Signal: n}
			}
		}
	}
}

// ends reports whether a signal ends the copy.
func ends(s os.Signal) (syscall.Signal, bool) {
	n, ok := s.(syscall.Signal)
	return n, ok && (n == syscall.SIGINT || n == syscall.SIGTERM || n == syscall.SIGHUP || n == syscall.SIGQUIT)
}

// transfer is the copy of one file to all nodes.
type transfer struct {
	*Job
	file    *File
	step    *msg.StepRecord
	info    os.FileInfo
	session *stepio.Session
	sum     func() ([]byte, error) // checksum of the content, after reading it
	slots   chan struct{}          // limits the nodes served at a time
	sending sync.WaitGroup

	mu      sync.Mutex
	nodes   []nodeState
	left    int
	began   bool
	closed  bool
	errno   int
	launch  *time.Timer
	done    chan struct{}
	changed chan struct{} // the controller is to be asked
}

type nodeState struct {
	over bool          // it has the file, or has failed
	lost bool          // its connection has ended
	gone chan struct{} // closed when over
}

func newTransfer(j *Job, f *File, step *msg.StepRecord, info os.FileInfo) *transfer {
	fanout := j.Fanout
	if fanout <= 0 {
		fanout = DefaultFanout
	}
	t := &transfer{Job: j, file: f, step: step, info: info, slots: make(chan struct{}, fanout), left: len(step.GetNodes()),
		nodes: make([]nodeState, len(step.GetNodes())), launch: time.NewTimer(1<<63 - 1), done: make(chan struct{}),
		changed: make(chan struct{}, 1)}
	for i := range t.nodes {
		t.nodes[i].gone = make(chan struct{})
	}
	t.sum = sync.OnceValues(t.read)
	return t
}

// work describes the file for the nodes.
func (t *transfer) work() *msg.StepWork {
	f := &msg.StepFile{Path: t.file.To, Size: uint64(t.info.Size()), Mode: uint32(t.info.Mode().Perm()), Force: t.file.Force,
		Preserve: t.file.Preserve, Compressed: t.file.Compress, ByNode: t.file.ByNode, Folder: t.file.Folder}
	if st, ok := t.info.Sys().(*syscall.Stat_t); ok {
		f.AtimeNs, f.MtimeNs = st.Atim.Nano(), st.Mtim.Nano()
	}
	return &msg.StepWork{Dir: "/", Umask: submission.Umask(), InTask: stepwire.All, Receive: f,
		Rlimits: submission.Limits(nil, false)}
}

// read computes the checksum of the content.
func (t *transfer) read() ([]byte, error) {
	h := sha256.New()
	n, err := io.CopyBuffer(h, plain{t.content()}, make([]byte, blockBytes))
	if err == nil && n < t.info.Size() {
		err = fmt.Errorf("%s was truncated while it was copied", t.file.Path)
	}
	return h.Sum(nil), err
}

// content reads the file up to its initial size.
func (t *transfer) content() io.Reader { return io.NewSectionReader(t.file.From, 0, t.info.Size()) }

// plain hides other methods of a reader, such as WriteTo.
type plain struct{ io.Reader }

// send sends the content to a node whose task is ready.
func (t *transfer) send(node int) {
	defer t.sending.Done()
	gone := t.nodes[node].gone
	select {
	case t.slots <- struct{}{}:
		defer func() { <-t.slots }()
	case <-gone:
		return
	}
	to := t.session.Feed(node, stepwire.All, t.Timeout)
	var w io.WriteCloser = to
	if t.file.Compress {
		w = s2.NewWriter(to, s2.WriterConcurrency(1))
	}
	from := &until{t.content(), gone}
	_, err := io.CopyBuffer(bare{w}, from, make([]byte, blockBytes))
	var sum []byte
	if err == nil {
		if sum, err = t.sum(); err != nil {
			t.unreadable(err)
			return
		}
		_, err = w.Write(sum)
	}
	if err == nil && t.file.Compress {
		err = w.Close()
	}
	if err == nil {
		err = to.Close()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.fail(node, syscall.ETIMEDOUT, "it accepted no data for "+t.Timeout.String())
	}
	// The node reports any other error, or its connection ends.
}

// bare hides other methods of a writer, such as ReadFrom.
type bare struct{ io.Writer }

// until ends the reading when the node is done for.
type until struct {
	io.Reader
	gone <-chan struct{}
}

func (u *until) Read(b []byte) (int, error) {
	select {
	case <-u.gone:
		return 0, os.ErrClosed
	default:
		return u.Reader.Read(b)
	}
}

package root

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/sluice-hpc/sluice/internal/mtls"
	"github.com/sluice-hpc/sluice/noded/agent"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// mostPast is how many ended and forgotten attempts a node remembers: several days' worth on most nodes.
const mostPast = 16384

// tooMany is the number of lines at which the file must be rewritten.
const tooMany = 2*mostPast + 1

// past remembers how the last attempts on this node ended, after everything else about them was deleted on the controller's
// order. A controller restored from a backup may not know that they ended, and may even order them to run. The file has a line
// per attempt. It is appended to, and rewritten when it has twice as many lines as needed. An end is on disk before the rest of
// the attempt is deleted. If the disk fails, the log says so and the rest is deleted nevertheless, which frees space; the end is
// then written with the next one.
type past struct {
	sync   sync.Mutex // before disk
	synced int        // how many of the added ends are on disk

	disk  sync.Mutex // before mu; a disk that hangs only blocks add
	path  string
	f     *os.File
	lines int // in the file; tooMany: it must be rewritten
	added int

	mu    sync.Mutex
	ends  map[agent.Key]*pb.StepReport
	order []agent.Key // oldest first
	gone  gone
}

// gone bounds the ends that were dropped to save space: none has a higher epoch or ended later.
type gone struct {
	upTo  uint64
	until int64 // nanoseconds since 1970, by the node's clock
}

func (g *gone) add(epoch uint64, ended int64) {
	g.upTo, g.until = max(g.upTo, epoch), max(g.until, ended)
}

// open reads the file. Unreadable lines, such as a truncated one, are skipped.
func (p *past) open(path string) error {
	p.path, p.ends = path, map[agent.Key]*pb.StepReport{}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("cannot read which jobs have ended here: %w", err)
	}
	p.f = f
	s := bufio.NewScanner(f)
	for ; s.Scan(); p.lines++ {
		var g gone
		if _, err := fmt.Sscanf(s.Text(), goneForm, &g.upTo, &g.until); err == nil {
			p.gone.add(g.upTo, g.until)
		} else if x := parsePast(s.Text()); x != nil {
			p.note(x)
		}
	}
	if err := s.Err(); err != nil {
		return fmt.Errorf("cannot read which jobs have ended here: %s: %w", path, err)
	}
	return p.begin()
}

// begin rewrites the file: its last line may be truncated.
func (p *past) begin() error {
	var b bytes.Buffer
	if p.gone != (gone{}) {
		fmt.Fprintf(&b, goneForm+"\n", p.gone.upTo, p.gone.until)
	}
	for _, k := range p.order {
		b.WriteString(pastLine(p.ends[k]))
	}
	if err := mtls.Write(p.path, 0o600, b.Bytes()); err != nil {
		return err
	}
	f, err := os.OpenFile(p.path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_ = p.f.Close()
	p.f, p.lines = f, len(p.order)
	return nil
}

// goneForm is the first line of the file once an end was dropped. pastForm is each other line.
const goneForm = "gone %d %d."
const pastForm = "%d %d %d %d %q %d %d %d %d %t %q %q."

func pastLine(r *pb.StepReport) string {
	k, x := r.Key, r.Exit
	job, _ := proto.MarshalOptions{Deterministic: true}.Marshal(r.Job) // numbers and bytes always marshal
	return fmt.Sprintf(pastForm+"\n", k.JobId, k.Attempt, k.Epoch, k.Step, x.Verdict, x.WaitStatus, x.StartNs, x.EndNs, x.RanNs,
		x.StoppedOnOrder, x.StopReason, job)
}

func parsePast(line string) *pb.StepReport {
	k, j, job := &pb.StepKey{}, &pb.StepJob{}, ""
	x := &pb.ExitRecord{Key: k}
	if _, err := fmt.Sscanf(line, pastForm, &k.JobId, &k.Attempt, &k.Epoch, &k.Step, &x.Verdict, &x.WaitStatus, &x.StartNs, &x.EndNs,
		&x.RanNs, &x.StoppedOnOrder, &x.StopReason, &job); err != nil || proto.Unmarshal([]byte(job), j) != nil {
		return nil
	}
	return &pb.StepReport{Key: k, Phase: pb.StepPhase_STEP_ENDED, Exit: x, Job: j}
}

func (p *past) note(r *pb.StepReport) {
	k := agent.KeyOf(r.Key)
	if p.ends[k] == nil {
		p.order = append(p.order, k)
	}
	p.ends[k] = r
	if len(p.order) > mostPast {
		p.gone.add(p.order[0].Epoch, p.ends[p.order[0]].Exit.EndNs)
		delete(p.ends, p.order[0])
		p.order = p.order[1:]
	}
}

// add remembers an end and returns when it is on disk. The first end of an attempt stands.
func (p *past) add(x *pb.ExitRecord, job *pb.StepJob) error {
	n, err := p.write(x, job)
	if err != nil {
		return err
	}
	return p.flush(n)
}

// write returns the number of ends added so far, for flush.
func (p *past) write(x *pb.ExitRecord, job *pb.StepJob) (n int, err error) {
	p.disk.Lock()
	defer p.disk.Unlock()
	if p.f == nil || x.Verdict == "" {
		return 0, nil
	}
	known := p.of(x.Key) != nil
	short := parsePast(pastLine(&pb.StepReport{Key: x.Key, Exit: x, Job: job}))
	if short == nil {
		return 0, fmt.Errorf("cannot write %v", x.Key)
	}
	if !known {
		p.mu.Lock()
		p.note(short)
		p.mu.Unlock()
		p.added++
		p.lines++
	}
	switch {
	case p.lines >= tooMany: // also after a failure: memory holds what the file may lack
		return 0, p.begin()
	case known:
		return p.added, nil
	}
	if _, err = p.f.WriteString(pastLine(short)); err != nil {
		p.lines = tooMany
	}
	return p.added, err
}

// flush waits until the first n ends are on disk. One sync serves all that were written before it.
func (p *past) flush(n int) error {
	p.sync.Lock()
	defer p.sync.Unlock()
	if p.synced >= n {
		return nil
	}
	p.disk.Lock()
	f, added, broken := p.f, p.added, p.lines >= tooMany
	p.disk.Unlock()
	if broken {
		return fmt.Errorf("%s could not be written: it will be rewritten", p.path)
	}
	if err := f.Sync(); err != nil && !errors.Is(err, os.ErrClosed) { // closed: it was rewritten and synced
		p.disk.Lock()
		p.lines = tooMany // another sync would report success without having written anything
		p.disk.Unlock()
		return fmt.Errorf("cannot sync %s: %w", p.path, err)
	}
	p.synced = added
	return nil
}

// of returns how an attempt ended, nil if unknown.
func (p *past) of(k *pb.StepKey) *pb.ExitRecord {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ends[agent.KeyOf(k)].GetExit()
}

// above returns the ends with a higher epoch, oldest first, and the bounds of those that were dropped; gone{}: none.
func (p *past) above(epoch uint64) (out []*pb.StepReport, lost gone) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range p.order {
		if k.Epoch > epoch {
			out = append(out, p.ends[k])
		}
	}
	if p.gone.upTo > epoch {
		lost = p.gone
	}
	return out, lost
}

// forgotten reports whether the record of an attempt may have been dropped.
func (p *past) forgotten(k *pb.StepKey) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ends[agent.KeyOf(k)] == nil && k.Epoch <= p.gone.upTo
}

// keys returns the attempts, newest last.
func (p *past) keys() []*pb.StepKey {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]*pb.StepKey, 0, len(p.order))
	for _, k := range p.order {
		out = append(out, k.Proto())
	}
	return out
}

func (p *past) close() {
	if p.f != nil {
		_ = p.f.Close()
	}
}

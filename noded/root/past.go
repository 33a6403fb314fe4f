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

// mostPast is how many attempts that have ended and were forgotten a node keeps in mind: those of days, on most nodes.
const mostPast = 16384

// tooMany lines are in a file that has to be written anew.
const tooMany = 2*mostPast + 1

// past is what became of the last attempts on this node after all else of them was deleted on the controller's order. A controller whose
// state was restored from a backup may not know that they have ended, or order them to run. It is a file of lines, which is appended to
// and, when it has twice as many lines as count, written anew. An end is on disk before all else of it is deleted; where the disk fails,
// the log says so, the rest is deleted all the same, which makes room, and the end is written with the next one.
type past struct {
	sync   sync.Mutex // before disk
	synced int        // how many that were added are on disk

	disk  sync.Mutex // before mu; a disk that does not answer holds up who adds, nobody else
	path  string
	f     *os.File
	lines int // in the file; more than it may have (tooMany): it has to be written anew
	added int

	mu    sync.Mutex
	ends  map[agent.Key]*pb.StepReport
	order []agent.Key // oldest first
	gone  gone
}

// gone is what of the past was let go to make room: none of a higher epoch, none that ended later.
type gone struct {
	upTo  uint64
	until int64 // nanoseconds since 1970, by the node's clock
}

func (g *gone) add(epoch uint64, ended int64) {
	g.upTo, g.until = max(g.upTo, epoch), max(g.until, ended)
}

// open reads what there is. Lines that cannot be read, such as one that was cut short, are left out.
func (p *past) open(path string) error {
	p.path, p.ends = path, map[agent.Key]*pb.StepReport{}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("cannot tell which jobs have ended here: %w", err)
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
		return fmt.Errorf("cannot tell which jobs have ended here: %s: %w", path, err)
	}
	return p.begin()
}

// begin writes the file anew: its last line may have no end.
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

// goneForm is the first line of the file, once something was let go. pastForm is each other line.
const goneForm = "gone %d %d."
const pastForm = "%d %d %d %d %q %d %d %d %d %t %q %q."

func pastLine(r *pb.StepReport) string {
	k, x := r.Key, r.Exit
	job, _ := proto.MarshalOptions{Deterministic: true}.Marshal(r.Job) // which numbers and bytes always are
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

// add keeps an end in mind, and returns when that is on disk. What an attempt came to first stands.
func (p *past) add(x *pb.ExitRecord, job *pb.StepJob) error {
	n, err := p.write(x, job)
	if err != nil {
		return err
	}
	return p.flush(n)
}

// write gives the number that was added, which flush waits for.
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
	case p.lines >= tooMany: // also after a failure: what the file lacks, or may lack, is kept in mind
		return 0, p.begin()
	case known:
		return p.added, nil
	}
	if _, err = p.f.WriteString(pastLine(short)); err != nil {
		p.lines = tooMany
	}
	return p.added, err
}

// flush waits until the first n that were added are on disk. One sync serves all that were written before it begins.
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
		return fmt.Errorf("%s could not be written: it will be written anew", p.path)
	}
	if err := f.Sync(); err != nil && !errors.Is(err, os.ErrClosed) { // closed: it was written anew, and synced
		p.disk.Lock()
		p.lines = tooMany // another sync would succeed without having written anything
		p.disk.Unlock()
		return fmt.Errorf("cannot sync %s: %w", p.path, err)
	}
	p.synced = added
	return nil
}

// of is what became of an attempt, nil when that is not known.
func (p *past) of(k *pb.StepKey) *pb.ExitRecord {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ends[agent.KeyOf(k)].GetExit()
}

// above are those whose epoch is above one, the oldest first, and what of these was let go; gone{}: nothing.
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

// forgotten tells whether records of an attempt may have been let go, if there are none.
func (p *past) forgotten(k *pb.StepKey) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ends[agent.KeyOf(k)] == nil && k.Epoch <= p.gone.upTo
}

// keys are the attempts, the newest last.
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

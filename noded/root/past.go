package root

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/sluice-hpc/sluice/conf/mtls"
	"github.com/sluice-hpc/sluice/noded/agent"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// mostPast is how many attempts that have ended and were forgotten a node keeps in mind: those of days, on most nodes.
const mostPast = 16384

// past is what became of the last attempts on this node after all else of them was deleted on the controller's order. A controller whose
// state was restored from a backup may not know that they have ended, or order them to run. It is a file of lines, which is appended to
// and, when it has twice as many lines as count, written anew. It is not synced: what a power cut takes of it is answered as unknown.
type past struct {
	disk  sync.Mutex // before mu; a disk that does not answer holds up who adds, nobody else
	path  string
	f     *os.File
	lines int // in the file

	mu    sync.Mutex
	ends  map[agent.Key]*pb.ExitRecord
	order []agent.Key // oldest first
}

// open reads what there is. Lines that cannot be read, such as one that was cut short, are left out.
func (p *past) open(path string) error {
	p.path, p.ends = path, map[agent.Key]*pb.ExitRecord{}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("cannot tell which jobs have ended here: %w", err)
	}
	p.f = f
	s := bufio.NewScanner(f)
	for ; s.Scan(); p.lines++ {
		if x := parsePast(s.Text()); x != nil {
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

func pastLine(x *pb.ExitRecord) string {
	k := x.Key
	return fmt.Sprintf("%d %d %d %d %s %d %d %d %d %t\n", k.JobId, k.Attempt, k.Epoch, k.Step, x.Verdict, x.WaitStatus, x.StartNs, x.EndNs,
		x.RanNs, x.StoppedOnOrder)
}

func parsePast(line string) *pb.ExitRecord {
	k := &pb.StepKey{}
	x := &pb.ExitRecord{Key: k}
	n, err := fmt.Sscan(line, &k.JobId, &k.Attempt, &k.Epoch, &k.Step, &x.Verdict, &x.WaitStatus, &x.StartNs, &x.EndNs, &x.RanNs,
		&x.StoppedOnOrder)
	if n < 10 || err != nil {
		return nil
	}
	return x
}

func (p *past) note(x *pb.ExitRecord) {
	k := agent.KeyOf(x.Key)
	if p.ends[k] == nil {
		p.order = append(p.order, k)
	}
	p.ends[k] = x
	if len(p.order) > mostPast {
		delete(p.ends, p.order[0])
		p.order = p.order[1:]
	}
}

// add keeps an end in mind. What an attempt came to first stands.
func (p *past) add(x *pb.ExitRecord) error {
	p.disk.Lock()
	defer p.disk.Unlock()
	if p.f == nil || p.of(x.Key) != nil || x.Verdict == "" || strings.ContainsAny(x.Verdict, " \n") {
		return nil
	}
	short := parsePast(pastLine(x))
	p.mu.Lock()
	p.note(short)
	p.mu.Unlock()
	if p.lines++; p.lines > 2*mostPast {
		return p.begin()
	}
	_, err := p.f.WriteString(pastLine(short))
	return err
}

// of is what became of an attempt, nil when that is not known.
func (p *past) of(k *pb.StepKey) *pb.ExitRecord {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ends[agent.KeyOf(k)]
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

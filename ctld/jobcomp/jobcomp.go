// Package jobcomp writes the job completion log (slurm.conf(5), JobCompType=jobcomp/filetxt): a line in the file JobCompLoc for each
// attempt of a job that has ended.
//
// Lines follow from the events of a commit, so no line can become untrue. The writer of the state only queues them; a goroutine opens the
// file, appends and closes it, so that logrotate may move it away at any time.
//
// After a crash, Run looks for jobs that ended since the last line known to be written (the mark, a file in the state's directory) or
// shortly before it, and writes those whose line is neither at the end of the file nor of the one that was rotated last. So each end is
// written once, with two exceptions around a crash: the end of an attempt that was requeued then, or that its node reported more than ten
// minutes late, is missing; and a line is written twice if its file was moved elsewhere than to JobCompLoc.1 within these ten minutes.
package jobcomp

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/internal/failpoint"
	"github.com/sluice-hpc/sluice/internal/program"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

const (
	queueSize = 100_000          // ends that may wait for a slow disk
	margin    = 10 * time.Minute // ends are not committed in the order of their times: nodes report them when they can
	tailBytes = 16 << 20         // of each file, read at startup
	retryIn   = 5 * time.Second  // after the file could not be written
	fileMode  = 0o644            // like Slurm's
	maxBatch  = 1000
)

// Settings are settings of slurm.conf. With Path "" nothing is written.
type Settings struct {
	Path    string
	Cluster string
}

// Log is the completion log. Make it with New; Changed is a loop observer, Run writes until its context ends.
type Log struct {
	settings func() Settings
	view     func() *state.View
	mark     string // path of the mark
	log      *slog.Logger
	queue    chan *pb.JobRecord
	dropped  atomic.Uint64
	latest   int64 // highest EndNs written
	// caught are the ends that catchUp has handled: those committed since the start are in the queue too.
	caught map[end]bool
}

// end is one attempt's end.
type end struct {
	job, restarts uint32
	ns            int64
}

func endOf(j *pb.JobRecord) end { return end{j.Id, j.Restarts, j.EndNs} }

// New makes a Log; dir is the state's directory.
func New(dir string, settings func() Settings, view func() *state.View, log *slog.Logger) *Log {
	return &Log{settings: settings, view: view, mark: filepath.Join(dir, "jobcomp.mark"), log: log,
		queue: make(chan *pb.JobRecord, queueSize)}
}

// Changed queues the attempts that ended with a commit. It does not block.
func (l *Log) Changed(c state.Change) {
	for _, e := range c.Events {
		switch e := e.(type) {
		case state.JobEnded:
			l.put(e.Job)
		case state.JobRequeued:
			if e.Ended != nil {
				l.put(e.Ended)
			}
		}
	}
}

func (l *Log) put(j *pb.JobRecord) {
	if l.settings().Path == "" {
		return
	}
	select {
	case l.queue <- j:
	default:
		if l.dropped.Add(1)%queueSize == 1 {
			l.log.Error("lines of the job completion log are lost: the file cannot be written", "file", l.settings().Path, "waiting",
				queueSize)
		}
	}
}

// Run writes missing lines, and then queued ones, including those that are queued when ctx ends.
func (l *Log) Run(ctx context.Context) {
	l.catchUp(ctx)
	for {
		var batch []*pb.JobRecord
		select {
		case j := <-l.queue:
			batch = l.more(append(batch, j))
		case <-ctx.Done():
			for batch = l.more(nil); len(batch) > 0; batch = l.more(nil) {
				if err := l.write(batch); err != nil {
					l.log.Error("cannot write the job completion log", "err", err)
					return
				}
			}
			return
		}
		l.insist(ctx, batch)
	}
}

func (l *Log) more(batch []*pb.JobRecord) []*pb.JobRecord {
	for len(batch) < maxBatch {
		select {
		case j := <-l.queue:
			batch = append(batch, j)
		default:
			return batch
		}
	}
	return batch
}

// insist writes until it succeeds or ctx ends.
func (l *Log) insist(ctx context.Context, batch []*pb.JobRecord) {
	for {
		err := l.write(batch)
		if err == nil {
			return
		}
		l.log.Error("cannot write the job completion log: trying again", "lines", len(batch), "err", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(retryIn):
		}
	}
}

// write appends the lines of a batch with one system call, and moves the mark.
func (l *Log) write(batch []*pb.JobRecord) error {
	s := l.settings()
	batch = slices.DeleteFunc(slices.Clone(batch), func(j *pb.JobRecord) bool { return l.caught[endOf(j)] })
	if s.Path == "" || len(batch) == 0 {
		return nil
	}
	var text strings.Builder
	latest := l.latest
	for _, j := range batch {
		text.WriteString(line(j, s.Cluster))
		latest = max(latest, j.EndNs)
	}
	f, err := os.OpenFile(s.Path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, fileMode)
	if err != nil {
		return err
	}
	defer f.Close()
	failpoint.Hit("jobcomp.before")
	size, _ := f.Seek(0, io.SeekEnd)
	if _, err := f.WriteString(text.String()); err != nil {
		_ = f.Truncate(size) // no partial lines: the batch is repeated
		return err
	}
	failpoint.Hit("jobcomp.written")
	l.latest = latest
	return l.setMark()
}

func (l *Log) setMark() error {
	return program.Replace(l.mark, strconv.AppendInt(nil, l.latest, 10))
}

// catchUp writes the ends that an earlier controller has committed and not written. Without a mark there was no controller with such a log.
func (l *Log) catchUp(ctx context.Context) {
	s := l.settings()
	if s.Path == "" {
		_ = os.Remove(l.mark) // ends without a log are not written later
		return
	}
	b, err := os.ReadFile(l.mark)
	mark, err2 := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	v := l.view()
	if err != nil || err2 != nil {
		if l.latest = v.NowNS; l.latest == 0 {
			l.latest = time.Now().UnixNano()
		}
		if err := l.setMark(); err != nil {
			l.log.Error("cannot store the position in the job completion log", "err", err)
		}
		return
	}
	if mark > time.Now().UnixNano() { // set by a fast clock: only the log itself shows what has been written since
		mark = 0
	}
	l.latest = mark
	written := map[string]bool{}
	for _, path := range []string{s.Path + ".1", s.Path} { // logrotate may have run
		for l := range strings.Lines(readTail(path)) {
			written[l] = true
		}
	}
	caught := map[end]bool{}
	var missing []*pb.JobRecord
	for j := range v.Jobs.All() {
		if j.State.Terminal() && !state.Active(j) && j.EndNs >= mark-int64(margin) {
			caught[endOf(j)] = true
			if !written[line(j, s.Cluster)] {
				missing = append(missing, j)
			}
		}
	}
	defer func() { l.caught = caught }()
	if len(missing) > 0 {
		l.log.Info("writing jobs that an earlier controller did not add to the job completion log", "jobs", len(missing))
		l.insist(ctx, missing)
	}
}

// readTail returns the end of the file, "" when it does not exist.
func readTail(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > tailBytes {
		if _, err := f.Seek(-tailBytes, io.SeekEnd); err != nil {
			return ""
		}
	}
	b, err := io.ReadAll(io.LimitReader(f, 2*tailBytes))
	if err != nil {
		return ""
	}
	return string(b)
}

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/client"
	pb "github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/conf"
)

// DownOptions say which cluster to stop.
type DownOptions struct {
	Dir  string // "": DefaultDir
	Wipe bool   // delete state, logs and configuration afterwards
	// Now kills jobs at once instead of giving them KillWait to end.
	Now      bool
	Progress func(text string)
}

// Stopped is what Down did.
type Stopped struct {
	Dir     string
	Cluster string // "" when there was none
	Daemons int    // that ran
	Running int    // jobs that were running, and have been cancelled
	Pending int    // jobs that were waiting, and have been cancelled
	Killed  int    // processes of jobs that nobody watched over any more
	Wiped   bool
}

// Down cancels the cluster's jobs, waits until they have ended, stops its daemons, and makes sure that nothing is left: no
// process, no cgroup, no mount. A cluster that does not run is no error.
func Down(ctx context.Context, o DownOptions) (*Stopped, error) {
	if o.Dir == "" {
		o.Dir = DefaultDir()
	}
	if _, err := os.Lstat(o.Dir); errors.Is(err, fs.ErrNotExist) {
		return &Stopped{Dir: o.Dir}, nil
	}
	d, err := existingDir(o.Dir)
	if err != nil {
		return nil, err
	}
	if !d.isCluster() {
		return &Stopped{Dir: string(d)}, nil
	}
	release, err := d.lock()
	if err != nil {
		return nil, err
	}
	defer release()
	rec, err := d.load()
	if err != nil && !o.Wipe {
		return nil, err
	}
	if rec == nil {
		rec = &record{}
	}
	w := &downer{o: o, dir: d, rec: rec, out: &Stopped{Dir: string(d), Cluster: rec.Cluster}}
	return w.out, w.run(ctx)
}

// isCluster says whether there is something in the folder that Up has made.
func (d Dir) isCluster() bool {
	for _, path := range []string{d.recordFile(), d.state()} {
		if _, err := os.Lstat(path); err == nil {
			return true
		}
	}
	return false
}

// downer is one run of Down.
type downer struct {
	o   DownOptions
	dir Dir
	rec *record
	out *Stopped
}

func (w *downer) say(format string, args ...any) {
	if w.o.Progress != nil {
		w.o.Progress(fmt.Sprintf(format, args...))
	}
}

func (w *downer) run(ctx context.Context) error {
	ctld, nodes, shims := w.daemons()
	w.out.Daemons = len(ctld) + len(nodes)
	if len(ctld) > 0 {
		if err := w.endJobs(ctx); err != nil {
			w.say("%s; killing what is left", firstLine(client.Text(err)))
		}
	}
	if ctx.Err() != nil {
		return interrupted(ctx)
	}
	w.say("stopping %d daemons", w.out.Daemons)
	err := errors.Join(stop(nodes, 10*time.Second), stop(ctld, 10*time.Second))
	gone(shims, 500*time.Millisecond) // idle ones end with their daemon
	killed, swept := sweep(w.dir, w.rec.Cluster, w.nodes())
	w.out.Killed = killed
	err = errors.Join(err, swept, w.unmount())
	if err != nil {
		return err
	}
	w.rec.Daemons = map[string]identity{}
	if w.o.Wipe {
		return w.wipe()
	}
	return w.dir.save(w.rec)
}

// daemons gives every process of the cluster that runs, recorded or not.
func (w *downer) daemons() (ctld, nodes, shims []identity) {
	for _, f := range w.dir.find() {
		switch {
		case f.isShim():
			shims = append(shims, f.identity)
		case slices.Contains(f.argv, "--node"):
			nodes = append(nodes, f.identity)
		default:
			ctld = append(ctld, f.identity)
		}
	}
	for name, id := range w.rec.Daemons {
		if !id.alive() || slices.Contains(ctld, id) || slices.Contains(nodes, id) {
			continue
		}
		if name == "ctld" {
			ctld = append(ctld, id)
		} else {
			nodes = append(nodes, id)
		}
	}
	return ctld, nodes, shims
}

// nodes gives the names of all nodes that may have left something.
func (w *downer) nodes() (names []string) {
	entries, _ := os.ReadDir(w.dir.join("spool"))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// endJobs cancels every job that has not ended and waits until no job has anything left on a node.
func (w *downer) endJobs(ctx context.Context) error {
	unfinished, err := w.jobs(ctx)
	if err != nil {
		return err
	}
	for _, j := range unfinished {
		if j.State == pb.JobState_JOB_PENDING {
			w.out.Pending++
		} else {
			w.out.Running++
		}
	}
	if len(unfinished) == 0 {
		return nil
	}
	w.say("cancelling %d running and %d pending jobs", w.out.Running, w.out.Pending)
	if err := w.cancel(ctx, 0); err != nil {
		return err
	}
	if w.o.Now {
		if err := w.cancel(ctx, uint32(unix.SIGKILL)); err != nil {
			return err
		}
	}
	limit := w.killWait() + 10*time.Second
	for deadline := time.Now().Add(limit); ; time.Sleep(pollEvery) {
		left, err := w.jobs(ctx)
		if err != nil || len(left) == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("cannot end %d jobs within %s", len(left), limit)
		}
		w.say("waiting for %d jobs to end", len(left))
	}
}

// killWait is what the cluster gives a job between SIGTERM and SIGKILL.
func (w *downer) killWait() time.Duration {
	if c, err := conf.Load(w.rec.Conf, conf.Options{}); err == nil && !w.o.Now {
		return time.Duration(c.KillWaitSec) * time.Second
	}
	return 30 * time.Second
}

// unended selects jobs that have not ended or still hold something.
func unended() *pb.JobsRequest {
	return &pb.JobsRequest{States: []pb.JobState{pb.JobState_JOB_PENDING, pb.JobState_JOB_RUNNING, pb.JobState_JOB_SUSPENDED}, StateFlags: pb.JobCompleting, AllStates: true}
}

func (w *downer) jobs(ctx context.Context) ([]*pb.JobRecord, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c, err := client.Dial(ctx, w.dir.socket())
	if err != nil {
		return nil, err
	}
	defer c.Close()
	req := unended()
	req.Fields = []uint32{1, 3} // id and state
	stream, err := c.Jobs(ctx, req)
	if err != nil {
		return nil, err
	}
	var jobs []*pb.JobRecord
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return jobs, nil
		}
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, r.Jobs...)
	}
}

// cancel acts on all jobs in one call, so that none can start in the place of another.
func (w *downer) cancel(ctx context.Context, signal uint32) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c, err := client.Dial(ctx, w.dir.socket())
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.CancelJobs(ctx, &pb.CancelJobsRequest{Filter: unended(), ByFilter: true, Signal: signal, Full: signal != 0, Comment: "the cluster is being stopped"})
	return err
}

// unmount detaches what is mounted in the spools: a prolog that failed to clean up may leave that.
func (w *downer) unmount() error {
	var errs []error
	for _, at := range slices.Backward(mountsBelow(w.dir.spool(""))) {
		if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
			errs = append(errs, fmt.Errorf("cannot unmount %s: %w", at, err))
		}
	}
	return errors.Join(errs...)
}

func mountsBelow(dir string) (found []string) {
	b, _ := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 {
			if at := unescapeMount(f[1]); strings.HasPrefix(at, dir+"/") {
				found = append(found, at)
			}
		}
	}
	return found
}

// wipe deletes what Up has made, and the folder when nothing else is in it.
func (w *downer) wipe() error {
	w.out.Wiped = true
	for _, path := range w.dir.owned() {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("cannot delete %s: %w", path, err)
		}
	}
	leftovers, _ := filepath.Glob(w.dir.join(".*.json.*"))
	for _, path := range leftovers {
		_ = os.Remove(path)
	}
	_ = os.Remove(string(w.dir))
	return nil
}

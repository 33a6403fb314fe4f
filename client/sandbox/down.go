package sandbox

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
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/conf"
)

// DownOptions select which cluster to stop, and how.
type DownOptions struct {
	Dir  string // "": DefaultDir
	Wipe bool   // delete state, logs and configuration afterwards
	// Now kills jobs at once instead of giving them KillWait to end.
	Now      bool
	Progress func(text string)
}

// Stopped is the result of Down.
type Stopped struct {
	Dir     string
	Cluster string // "" if there was none
	Daemons int    // number of daemons that ran
	Running int    // running jobs that were cancelled
	Pending int    // pending jobs that were cancelled
	Killed  int    // processes of jobs without a supervising daemon
	Wiped   bool
	Left    []string // in the directory after wiping: files that `sluice up` did not create
}

// Down cancels the cluster's jobs, waits for their end, stops its daemons, and makes sure that no process, cgroup or mount is left.
// A cluster that is not running is not an error.
func Down(ctx context.Context, o DownOptions) (*Stopped, error) {
	if o.Dir == "" {
		o.Dir = DefaultDir()
	}
	path, err := absolute(o.Dir)
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return &Stopped{Dir: path}, nil
	}
	d, err := existingDir(path)
	if err != nil {
		return nil, err
	}
	if _, absent := os.Lstat(d.recordFile()); errors.Is(absent, fs.ErrNotExist) && len(d.find()) == 0 {
		return &Stopped{Dir: string(d)}, d.removeRest(o.Wipe)
	}
	lock, err := d.lock()
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	rec, damage := d.load()
	w := &downer{o: o, dir: d, rec: rec, out: &Stopped{Dir: string(d)}}
	if rec == nil { // lost or damaged: the daemons can still be found
		w.rec = &record{Cluster: d.clusterName()}
	}
	w.out.Cluster = w.rec.Cluster
	if err := w.stop(ctx); err != nil {
		return w.out, err
	}
	switch {
	case rec == nil && (o.Wipe || damage != nil):
		return w.out,
			fmt.Errorf(
				"cannot wipe %s: the record %s, which tells what `sluice up` created, is lost or damaged; nothing runs there any more "+
					"and nothing was deleted; check its contents and delete it yourself", d, recordName)
	case rec == nil:
		return w.out, nil
	case o.Wipe:
		w.out.Wiped = true
		w.out.Left, err = d.remove(d.stillMade(rec))
		return w.out, err
	}
	return w.out, d.save(rec)
}

// stillMade returns the names that Up created, except a file that has replaced its link to a configuration (editors do that on
// saving): it belongs to the user.
func (d Dir) stillMade(rec *record) []string {
	if info, err := os.Lstat(d.ownConf()); err != nil || !info.Mode().IsRegular() || rec.Conf == d.ownConf() {
		return rec.Made
	}
	return slices.DeleteFunc(slices.Clone(rec.Made), func(name string) bool { return name == filepath.Base(d.ownConf()) })
}

// removeRest deletes the leftovers of a command that was killed before it had a record.
func (d Dir) removeRest(wipe bool) error {
	if !wipe || d.checkEmpty() != nil {
		return nil
	}
	lock, err := d.lock()
	if err != nil {
		return err
	}
	defer lock.Close()
	if _, absent := os.Lstat(d.recordFile()); !errors.Is(absent, fs.ErrNotExist) {
		return fmt.Errorf("cannot wipe %s: `sluice up` has just made a cluster there; try again", d)
	}
	_, err = d.remove(nil)
	return err
}

// downer is one call of Down.
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

// stop ends all processes of the cluster.
func (w *downer) stop(ctx context.Context) error {
	ctld, nodes, shims := w.daemons()
	w.out.Daemons = len(ctld) + len(nodes)
	if len(ctld) > 0 {
		if err := w.endJobs(ctx); err != nil {
			w.say("%s; killing the rest", firstLine(client.Text(err)))
		}
	}
	if ctx.Err() != nil {
		return interrupted(ctx)
	}
	w.say("stopping %d daemons", w.out.Daemons)
	err := errors.Join(stop(nodes, 10*time.Second), stop(ctld, 10*time.Second))
	gone(shims, 500*time.Millisecond) // idle ones exit with their daemon
	killed, swept := sweep(w.dir, w.rec.Cluster, w.nodes())
	w.out.Killed = killed
	err = errors.Join(err, swept, w.unmount())
	if err != nil {
		return err
	}
	w.rec.Daemons = map[string]identity{}
	return nil
}

// daemons returns every running process of the cluster, recorded or not.
func (w *downer) daemons() (ctld, nodes, shims []identity) {
	for _, f := range w.dir.find() {
		switch {
		case f.isShim():
			shims = append(shims, f.identity)
		case slices.Contains(f.argv, "--node"), f.pretends():
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

// nodes returns the names of all nodes that may have leftovers.
func (w *downer) nodes() (names []string) {
	entries, _ := os.ReadDir(w.dir.join("spool"))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// endJobs cancels every unfinished job and waits until no job has anything left on a node.
func (w *downer) endJobs(ctx context.Context) error {
	unfinished, err := w.jobs(ctx, unended())
	if err != nil {
		return err
	}
	for _, j := range unfinished {
		if j.State == msg.JobState_JOB_PENDING {
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
		left, err := w.jobs(ctx, unended())
		if err != nil || len(left) == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return errors.New(msg.Singular(fmt.Sprintf("cannot end %d jobs within %s", len(left), limit)))
		}
		w.say("%s", msg.Singular(fmt.Sprintf("waiting for %d jobs to end", len(left))))
	}
}

// killWait is the cluster's time between SIGTERM and SIGKILL.
func (w *downer) killWait() time.Duration {
	if c, err := conf.Load(w.rec.Conf, conf.Options{}); err == nil && !w.o.Now {
		return time.Duration(c.KillWaitSec) * time.Second
	}
	return 30 * time.Second
}

// unended selects jobs that have not ended or still hold resources.
func unended() *msg.JobsRequest {
	return &msg.JobsRequest{States: []msg.JobState{msg.JobState_JOB_PENDING, msg.JobState_JOB_RUNNING, msg.JobState_JOB_SUSPENDED},
		StateFlags: msg.JobCompleting, AllStates: true}
}

func (w *downer) jobs(ctx context.Context, req *msg.JobsRequest) ([]*msg.JobRecord, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c, err := client.Dial(ctx, w.dir.socket())
	if err != nil {
		return nil, err
	}
	defer c.Close()
	req.Fields = []uint32{1, 3} // id and state
	stream, err := c.Jobs(ctx, req)
	if err != nil {
		return nil, err
	}
	var jobs []*msg.JobRecord
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

// cancel acts on all jobs in one call, so that none can start when another frees resources.
func (w *downer) cancel(ctx context.Context, signal uint32) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c, err := client.Dial(ctx, w.dir.socket())
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.CancelJobs(ctx, &msg.CancelJobsRequest{Filter: unended(), ByFilter: true, Signal: signal, Full: signal != 0})
	return err
}

// unmount detaches mounts in the spools, which a failed prolog may leave.
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

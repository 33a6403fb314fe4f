package stepd

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/internal/clock"
	"github.com/sluice-hpc/sluice/noded/cgroup"
	"github.com/sluice-hpc/sluice/noded/private"
	"github.com/sluice-hpc/sluice/noded/step/folder"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// run is one step, from acceptance to its exit record. All fields below board belong to its loop goroutine.
type run struct {
	b      *pb.Bundle
	dir    string
	log    *slog.Logger
	orders chan *pb.StepOrder
	adopts chan adoption
	ended  chan struct{} // closed when the end has been published
	done   chan struct{} // closed when the record is on disk too, and the shim free for another step
	board  board

	grp       cgroup.Group
	crew      *crew // of an srun step; nil: a batch job
	task      *task
	launch    chan<- *task
	events    chan event
	emptied   chan struct{} // closed when the cgroup is empty after the last descendant was reaped
	phase     pb.StepPhase
	pid       int
	pidfd     int
	room      int     // the thread in the step's namespaces; 0: none
	tell      *teller // the job's stderr
	startNS   int64
	startUp   int64 // the same by CLOCK_BOOTTIME
	f         facts
	use       reaped
	seen      uint32
	waiting   []*pb.Signal // signals that came before the first process
	limit     limit
	contained bool // the allocation's first step has its container
	warned    bool
	warnAt    time.Time // when to look again whether the batch shell is ready for its warning
	frozen    bool
	killAt    time.Time // zero: not stopping
	killing   time.Time // when the first SIGKILL went out; zero: none yet
	allAt     time.Time // when SIGKILL goes to the steps of this allocation as well; zero: whenever it is sent
	told      bool      // reported that it cannot be killed
	adopted   bool      // the allocation has, or had, sshd sessions
	announced bool      // Slurm's line about a cancelled job was written
	sampleIn  time.Duration
	sampleAt  time.Time
	maxRSS    uint64 // KiB, the largest sample
	maxVM     uint64
	atOnce    bool // SIGKILL comes first
	stuck     bool // the launcher hangs in an open or a close of this step, or failed: the shim cannot be used again
}

func newRun(b *pb.Bundle, dir string, log *slog.Logger) *run {
	r := &run{
		b: b, dir: dir, log: log.With("job", b.Key.GetJobId(), "attempt", b.Key.GetAttempt()),
		orders: make(chan *pb.StepOrder), adopts: make(chan adoption), ended: make(chan struct{}), done: make(chan struct{}),
		events: make(chan event, 4),
		phase:  pb.StepPhase_STEP_PREPARING, pidfd: -1, sampleIn: time.Second,
	}
	now := clock.Boot()
	r.limit = limit{lengthS: b.LimitS, begunNS: now}
	if b.BegunBootNs > 0 && b.BegunBootNs < now { // a prolog ran in between
		r.limit.begunNS = b.BegunBootNs
	}
	if r.containing() {
		r.limit.pause(now)
	}
	if b.Step != nil {
		r.crew = newCrew(b)
	}
	r.publish(nil)
	return r
}

// loop is the step's goroutine.
func (r *run) loop(root cgroup.Root, launch chan<- *task) {
	defer close(r.done)
	if r.begin(root, launch) {
		timer := time.NewTimer(r.next())
		for r.phase != pb.StepPhase_STEP_ENDED {
			select {
			case ev := <-r.events:
				r.on(ev)
			case <-r.emptied:
				r.empty()
			case ev := <-r.fromSrun():
				r.heard(ev)
			case <-r.drained():
				r.finish()
			case o := <-r.orders:
				r.apply(o)
			case a := <-r.adopts:
				a.answer <- r.adopt(a.pid)
			case <-timer.C:
				r.tick(time.Now())
			}
			timer.Reset(r.next())
		}
		timer.Stop()
	}
	if r.pidfd >= 0 {
		unix.Close(r.pidfd)
	}
}

// begin starts the step. False: it has ended already.
func (r *run) begin(root cgroup.Root, launch chan<- *task) bool {
	r.startNS, r.startUp = time.Now().UnixNano(), clock.Boot()
	grp, err := root.Create(r.b.Cgroup, r.b.Limits)
	if err != nil {
		r.f.failed, r.f.detail = pb.VerdictNodeFailed, err.Error()
		r.finish()
		return false
	}
	r.grp = grp
	if r.f.holdOnly = r.b.HoldOnly; r.b.HoldOnly && !private.Apart(r.b.Privacy) {
		r.phase = pb.StepPhase_STEP_RUNNING
		r.publish(nil)
		return true
	}
	r.launch = launch
	if r.crew != nil {
		r.crew.reach()
		return true
	}
	r.task = &task{b: r.b, dir: r.dir, grp: grp, events: r.events, done: make(chan struct{}), hold: r.b.HoldOnly}
	launch <- r.task
	return true
}

func (r *run) on(ev event) {
	if r.crew != nil {
		r.crew.answered = true
	}
	if ev.tell != nil {
		r.tell = ev.tell
	}
	switch ev.kind {
	case evHeld:
		if r.phase != pb.StepPhase_STEP_PREPARING {
			return // stopped meanwhile
		}
		r.room, r.phase = ev.room, pb.StepPhase_STEP_RUNNING
		r.publish(nil)
	case evStarted:
		r.room = ev.room
		r.pid, r.pidfd, r.startNS, r.startUp = ev.pid, ev.pidfd, ev.startNS, ev.startUp
		r.phase = pb.StepPhase_STEP_RUNNING
		if r.crew != nil {
			r.crewStarted(ev.floor)
			return
		}
		go reap(r.events, ev.pid, ev.pidfd, ev.floor, r.epilogs())
		r.started()
	case evTask:
		r.taskEnded(ev.member, ev.status)
	case evFailed:
		if r.f.stop != "" && ev.verdict == pb.VerdictLaunchFailed { // the stop ended its container
			ev.verdict, ev.detail, ev.status = "", "", 0
		}
		r.f.failed, r.f.detail, r.f.status = ev.verdict, ev.detail, ev.status
		if r.crew == nil || ev.verdict != pb.VerdictLaunchFailed { // srun is told otherwise
			r.tell.say(ev.detail)
		}
		r.stuck = ev.broken
		r.gone()
	case evFirst:
		if r.crew == nil {
			r.f.status, r.f.hasStatus = ev.status, true
		} else if r.crew.drained != nil || r.crew.lingers(r.events) { // even when being stopped: leftovers have KillWait
			return
		}
		r.phase = pb.StepPhase_STEP_COMPLETING
		r.spareSteps(time.Now())
		// If the script ended because its job does, its leftovers have KillWait, too: srun may be among them, which still passes
		// on the tasks' last output.
		if now := time.Now(); r.crew != nil || !r.killing.IsZero() || !now.Before(r.killAt) {
			r.kill(now)
		}
		r.publish(nil)
	case evGone:
		if ev.hasStatus {
			r.f.status, r.f.hasStatus = ev.status, true
		}
		r.use = ev.use
		r.stuck = r.stuck || ev.broken
		r.gone()
	}
}

// epilogs returns the programs to run, one after the other, after the batch script.
func (r *run) epilogs() (list []*epilog) {
	if e := r.endOfContainer(r.b, nil); e != nil {
		list = append(list, e)
	}
	if r.b.TaskEpilog != "" {
		list = append(list, &epilog{r.task, r.launch, []string{r.b.TaskEpilog}, false})
	}
	return list
}

// started applies the signals and the suspension that waited for a process.
func (r *run) started() {
	if r.b.Container != nil && !r.frozen {
		r.limit.goOn(clock.Boot())
	}
	if r.frozen {
		r.must("suspend", r.grp.Freeze(true))
	}
	for _, s := range r.waiting {
		r.deliver(s)
	}
	r.waiting = nil
	r.sampleAt = time.Now().Add(r.sampleIn)
	r.publish(nil)
}

// gone handles the end of the last descendant. The cgroup is almost always empty then; processes that somebody else moved into it
// are killed.
func (r *run) gone() {
	if empty, err := r.grp.Empty(); err == nil && empty {
		r.empty()
		return
	}
	r.phase = pb.StepPhase_STEP_COMPLETING
	r.publish(nil)
	r.spareSteps(time.Now())
	r.kill(time.Now())
	r.emptied = make(chan struct{})
	go func() {
		defer close(r.emptied)
		awaitEmpty(r.grp)
	}()
}

// empty ends the step, once its output is drained: no process of it is left.
func (r *run) empty() {
	r.emptied = nil
	if r.crew != nil && r.crew.wire != nil && r.crew.drained == nil {
		r.drain()
		return
	}
	r.finish()
}

// finish writes the exit record first and then removes the cgroup, so that a crash in between loses nothing: Recover handles a
// leftover cgroup.
func (r *run) finish() {
	if r.grp != nil {
		r.account()
	}
	// Meanwhile the launcher closes the job's files, which may hang: then its thread is lost, and the shim with it.
	r.stuck = r.stuck || r.task != nil && !doneWithin(r.task.done, settleFor)
	rec := r.record()
	err := folder.WriteExit(r.dir, rec)
	if r.grp != nil {
		if err := r.grp.Remove(); err != nil {
			r.log.Error("cannot remove the cgroup of an ended step", "err", err)
		}
	}
	r.stuck = !r.tell.close() || r.stuck                          // first: after the end is known, the file's file system may be unmounted
	if r.task != nil && !r.stuck && private.Wanted(r.b.Privacy) { // let the launcher leave the namespaces; nothing else needs it
		select {
		case r.launch <- &task{}:
		default: // the launcher hangs
		}
	}
	r.phase = pb.StepPhase_STEP_ENDED
	r.publish(rec)
	close(r.ended)
	r.closeCrew(rec)
	if err != nil {
		r.insist(rec, err)
	}
}

// insist keeps this shim, which alone knows how the step ended, until the record is on disk or the step was forgotten.
func (r *run) insist(rec *pb.ExitRecord, err error) {
	r.log.Error("cannot write the exit record: will retry every second", "err", err)
	for !errors.Is(err, os.ErrNotExist) && err != nil {
		time.Sleep(time.Second)
		err = folder.WriteExit(r.dir, rec)
	}
}

// account takes CPU time from the cgroup if it counts there (which includes processes that reap their own children), else from
// wait4.
func (r *run) account() {
	if r.f.holdOnly && !r.adopted {
		return
	}
	u := r.grp.Usage()
	if r.f.holdOnly {
		r.accountAdopted(u)
		return
	}
	if u.UserUsec+u.SystemUsec > 0 {
		r.use.userUsec, r.use.systemUsec = u.UserUsec, u.SystemUsec
	}
	r.use.maxRSSKiB = max(r.use.maxRSSKiB, r.maxRSS)
	if r.use.maxRSSKiB == 0 {
		r.use.maxRSSKiB = r.grp.PeakKiB()
	}
	r.f.oomKills = u.OOMKills
	r.f.memLimited = r.b.Limits.GetMemoryMib()
	if u.OOMKills > 0 {
		r.tell.say("Detected " + number(u.OOMKills) + " oom_kill event in StepId=" + stepID(r.b.Key) +
			". Some of the step tasks have been OOM Killed.")
	}
}

func stepID(k *pb.StepKey) string {
	switch k.GetStep() {
	case pb.BatchStep:
		return number(k.GetJobId()) + ".batch"
	case pb.ExternStep:
		return number(k.GetJobId()) + ".extern"
	case pb.InteractiveStep:
		return number(k.GetJobId()) + ".interactive"
	}
	return number(k.GetJobId()) + "." + number(k.GetStep())
}

func (r *run) record() *pb.ExitRecord {
	rec := verdict(r.f)
	rec.Key = r.b.Key
	wall, boot := clock.Both()
	rec.BootId, rec.EndBootNs, rec.RanNs = clock.BootID(), boot, boot-r.startUp
	rec.StartNs, rec.EndNs = wall.UnixNano()-rec.RanNs, wall.UnixNano() // consistent even if somebody set the clock meanwhile
	rec.MaxRssKib = r.use.maxRSSKiB
	rec.CpuUsecUser, rec.CpuUsecSystem = r.use.userUsec, r.use.systemUsec
	if !r.b.HoldOnly || r.adopted {
		rec.Usage = r.used()
	}
	return rec
}

// publish shows the current state. Before the end, exit is nil or, for an unkillable step, carries only its detail.
func (r *run) publish(exit *pb.ExitRecord) {
	r.board.put(&pb.StepReport{
		Key: r.b.Key, Phase: r.phase, Exit: exit, SignalsSeen: r.seen, Pid: int64(r.pid), StartNs: r.startNS,
		RoomThread: int64(r.room),
	})
}

// must logs an error that cannot be handled here; the step continues.
func (r *run) must(what string, err error) {
	if err != nil {
		r.log.Error("cannot "+what, "err", err)
	}
}

// awaitEmpty waits until the cgroup is empty. It polls, because the remaining processes are not the shim's descendants.
func awaitEmpty(g cgroup.Group) {
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		if empty, err := g.Empty(); err == nil && empty {
			return
		}
		time.Sleep(pause)
	}
}

// accept reads the bundle in dir and takes the step: the rename makes it this shim's.
func accept(spool, dir string) (*pb.Bundle, string, error) {
	b, err := folder.ReadBundle(dir)
	if err != nil {
		return nil, "", err
	}
	if b.Key.GetJobId() == 0 {
		return nil, "", errors.New("cannot take a step without a job id")
	}
	final := filepath.Join(spool, folder.Steps, folder.Name(b.Key))
	if err := unix.Rename(dir, final); err != nil { // os.Rename would stat both first
		return nil, "", &os.LinkError{Op: "rename", Old: dir, New: final, Err: err}
	}
	return b, final, nil
}

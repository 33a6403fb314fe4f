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
	crew      *crew // of a step that srun has made; nil: a batch job
	task      *task
	launch    chan<- *task
	events    chan event
	emptied   chan struct{} // closed when the cgroup is empty after the last descendant was reaped
	phase     pb.StepPhase
	pid       int
	pidfd     int
	room      int     // the thread in its namespaces; 0: it has none
	tell      *teller // the job's stderr
	startNS   int64
	startUp   int64 // the same by CLOCK_BOOTTIME
	f         facts
	use       reaped
	seen      uint32
	waiting   []*pb.Signal // signals that came before the first process
	limit     limit
	contained bool // the step of this allocation has its container
	warned    bool
	warnAt    time.Time // when to look again whether the batch shell is ready for its warning
	frozen    bool
	killAt    time.Time // zero: not stopping
	killing   time.Time // when the first SIGKILL went out; zero: none yet
	allAt     time.Time // when SIGKILL goes to the steps of this allocation as well; zero: whenever it is sent
	told      bool      // said that it cannot be killed
	adopted   bool      // sessions of sshd are in the allocation, or were
	announced bool      // written Slurm's line about a cancelled job
	sampleIn  time.Duration
	sampleAt  time.Time
	maxRSS    uint64 // KiB, the largest of what was sampled
	maxVM     uint64
	atOnce    bool // the end is SIGKILL and nothing before it
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
	if b.BegunBootNs > 0 && b.BegunBootNs < now { // a prolog has run since
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

// loop is the goroutine of the step.
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

// begin is false when the step has ended already.
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
		if r.f.stop != "" && ev.verdict == pb.VerdictLaunchFailed { // it is what ended its container
			ev.verdict, ev.detail, ev.status = "", "", 0
		}
		r.f.failed, r.f.detail, r.f.status = ev.verdict, ev.detail, ev.status
		if r.crew == nil || ev.verdict != pb.VerdictLaunchFailed { // of which srun is told
			r.tell.say(ev.detail)
		}
		r.stuck = ev.broken
		r.gone()
	case evFirst:
		if r.crew == nil {
			r.f.status, r.f.hasStatus = ev.status, true
		} else if r.crew.drained != nil || r.crew.lingers(r.events) { // also when it is being stopped: they have KillWait, as tasks have
			return
		}
		r.phase = pb.StepPhase_STEP_COMPLETING
		r.spareSteps(time.Now())
		// Where a script ends because its job does, what it has left has KillWait, too: srun, which tells what the tasks still say.
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

// epilogs run one after the other when the batch script has ended.
func (r *run) epilogs() (list []*epilog) {
	if e := r.endOfContainer(r.b, nil); e != nil {
		list = append(list, e)
	}
	if r.b.TaskEpilog != "" {
		list = append(list, &epilog{r.task, r.launch, []string{r.b.TaskEpilog}, false})
	}
	return list
}

// started applies what was waiting for a process: signals, suspension.
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

// gone: no descendant is left. Almost always the cgroup is empty then; what somebody else moved into it is killed too.
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

// empty: nothing of the step is left but what it has written.
func (r *run) empty() {
	r.emptied = nil
	if r.crew != nil && r.crew.wire != nil && r.crew.drained == nil {
		r.drain()
		return
	}
	r.finish()
}

// finish writes the record first and removes the cgroup after, so that a crash between loses nothing: Recover removes both.
func (r *run) finish() {
	if r.grp != nil {
		r.account()
	}
	// The launcher puts the job's files away beside this, which may hang: its thread is lost then, and the shim with it.
	r.stuck = r.stuck || r.task != nil && !doneWithin(r.task.done, settleFor)
	rec := r.record()
	err := folder.WriteExit(r.dir, rec)
	if r.grp != nil {
		if err := r.grp.Remove(); err != nil {
			r.log.Error("cannot remove the cgroup of an ended step", "err", err)
		}
	}
	r.stuck = !r.tell.close() || r.stuck                          // first: whoever hears of the end may unmount what the file is on
	if r.task != nil && !r.stuck && private.Wanted(r.b.Privacy) { // nothing else needs to be left
		select {
		case r.launch <- &task{}:
		default: // it hangs
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

// insist keeps this shim, which is the only one to know the truth, until the record is on disk or the step has been forgotten.
func (r *run) insist(rec *pb.ExitRecord, err error) {
	r.log.Error("cannot write the exit record, trying again every second", "err", err)
	for !errors.Is(err, os.ErrNotExist) && err != nil {
		time.Sleep(time.Second)
		err = folder.WriteExit(r.dir, rec)
	}
}

// account takes CPU time from the cgroup where it counts there (it sees also what reaps itself), else from wait4.
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
	rec.StartNs, rec.EndNs = wall.UnixNano()-rec.RanNs, wall.UnixNano() // of one clock, if somebody has set it meanwhile
	rec.MaxRssKib = r.use.maxRSSKiB
	rec.CpuUsecUser, rec.CpuUsecSystem = r.use.userUsec, r.use.systemUsec
	if !r.b.HoldOnly || r.adopted {
		rec.Usage = r.used()
	}
	return rec
}

// publish shows the state as it is now. Before the end, exit is nil or (an unkillable step) carries only words.
func (r *run) publish(exit *pb.ExitRecord) {
	r.board.put(&pb.StepReport{
		Key: r.b.Key, Phase: r.phase, Exit: exit, SignalsSeen: r.seen, Pid: int64(r.pid), StartNs: r.startNS,
		RoomThread: int64(r.room),
	})
}

// must logs what cannot be mended here; the step goes on.
func (r *run) must(what string, err error) {
	if err != nil {
		r.log.Error("cannot "+what, "err", err)
	}
}

// awaitEmpty polls: only processes that are not the shim's descendants bring a step here.
func awaitEmpty(g cgroup.Group) {
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		if empty, err := g.Empty(); err == nil && empty {
			return
		}
		time.Sleep(pause)
	}
}

// accept reads the bundle in dir and takes the step: by the rename it becomes this shim's.
func accept(spool, dir string) (*pb.Bundle, string, error) {
	b, err := folder.ReadBundle(dir)
	if err != nil {
		return nil, "", err
	}
	if b.Key.GetJobId() == 0 {
		return nil, "", errors.New("cannot take a step without a job id")
	}
	final := filepath.Join(spool, folder.Steps, folder.Name(b.Key))
	if err := unix.Rename(dir, final); err != nil { // os.Rename would look at both first
		return nil, "", &os.LinkError{Op: "rename", Old: dir, New: final, Err: err}
	}
	return b, final, nil
}

package stepd

import (
	"cmp"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/noded/hw"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// This file is the part of a run's loop for srun steps.

// fromSrun delivers srun's messages and events of its connection; nil, which blocks for ever, for a batch job.
func (r *run) fromSrun() <-chan wireEvent {
	if r.crew == nil {
		return nil
	}
	return r.crew.events
}

func (r *run) drained() <-chan struct{} {
	if r.crew == nil {
		return nil
	}
	return r.crew.drained
}

// heard handles an event from srun.
func (r *run) heard(ev wireEvent) {
	now := time.Now()
	switch ev.kind {
	case wireUp:
		r.reached(ev)
	case wireFailed:
		if r.f.stop == "" {
			r.f.failed, r.f.detail = pb.VerdictLaunchFailed, ev.err.Error()
			r.log.Warn("a step cannot begin", "step", r.b.Key.GetStep(), "err", ev.err)
			r.gone()
		}
	case wireLost:
		r.crew.lose()
		if !r.b.Step.NoKill && r.phase < pb.StepPhase_STEP_COMPLETING {
			r.f.detail = cmp.Or(r.f.detail, "the connection to srun has ended")
			r.stop(pb.StopCancel, false, now)
		}
	case wireSignal:
		r.signalTasks(unix.Signal(ev.sig))
	case wireForce:
		if r.f.stop != "" { // for instance the end of its job, which ends srun as well and gives the tasks KillWait
			return
		}
		r.stopNow(pb.StopCancel, false, now)
	case wireStop:
		r.stopNow(pb.StopCancel, false, now)
	}
}

// reached starts the tasks as srun says.
func (r *run) reached(ev wireEvent) {
	c := r.crew
	if r.f.stop != "" {
		ev.wire.cut()
		return
	}
	c.wire, c.work = ev.wire, ev.work
	r.tell = &teller{file: lines{c.wire}, closed: make(chan struct{})}
	c.tell = r.tell
	if err := c.plan(); err != nil {
		r.f.failed, r.f.detail = pb.VerdictLaunchFailed, err.Error()
		r.f.status, r.f.hasStatus = syscall.WaitStatus(1<<8), true
		r.gone()
		return
	}
	go c.listen()
	c.watch(r.b.Step.Watchers)
	c.watch(c.early)
	r.task = &task{b: r.b, dir: r.dir, grp: r.grp, events: r.events, tell: r.tell, crew: c, done: make(chan struct{})}
	r.launch <- r.task
}

// crewStarted is called when all tasks that could start have started.
func (r *run) crewStarted(floor uint64) {
	c := r.crew
	c.begin()
	go reapCrew(r.events, c, floor, r.epilogsOf)
	r.started()
	for _, m := range c.members {
		if m.ended {
			r.taskEnded(m, m.status)
		}
	}
}

// epilogsOf returns the programs to run, one after the other, after a task: srun's own, then that of slurm.conf.
func (r *run) epilogsOf(m *member) (list []*epilog) {
	if m.receives {
		return nil
	}
	if e := r.endOfContainer(m.b, m); e != nil {
		list = append(list, e)
	}
	for _, program := range []string{r.crew.work.TaskEpilog, r.b.TaskEpilog} {
		if filepath.IsAbs(program) {
			list = append(list, &epilog{&task{b: m.b, dir: r.dir, grp: r.grp}, r.launch, []string{program}, false})
		}
	}
	return list
}

// taskEnded reports the end of a task to srun. The step's status is the highest.
func (r *run) taskEnded(m *member, status syscall.WaitStatus) {
	m.status, m.ended = status, true
	r.f.status = max(r.f.status, status)
	r.crew.left--
	if r.f.stop == "" { // else srun is not told why the step ends
		r.crew.pmix.ended(m.rank)
	}
	r.f.hasStatus = r.crew.left == 0
	if m.pid == r.pid && r.crew.left > 0 { // a process by which the node daemon finds the others
		for _, other := range r.crew.members {
			if !other.ended {
				r.pid = other.pid
			}
		}
		r.publish(nil)
	}
	killed := status.Signaled() && status.Signal() == unix.SIGKILL
	r.crew.ended(m, killed && r.grp.Usage().OOMKills > 0)
}

// signalTasks delivers a signal that srun passes on.
func (r *run) signalTasks(sig unix.Signal) {
	if sig <= 0 || sig > 64 {
		return
	}
	s := &pb.Signal{Signal: uint32(sig), Target: targetAll}
	if r.phase == pb.StepPhase_STEP_PREPARING {
		if len(r.waiting) < maxWaiting {
			r.waiting = append(r.waiting, s)
		}
		return
	}
	r.deliver(s)
}

// maxWaiting bounds the signals that wait for the first process.
const maxWaiting = 64

// unheard is how long a srun that does not read the tasks' output can delay the end of a step that is being ended.
const unheard = 10 * time.Second

// drain waits until srun has the tasks' output, at most unheard if the step is being ended.
func (r *run) drain() {
	r.phase = pb.StepPhase_STEP_COMPLETING
	r.killAt, r.sampleAt = time.Time{}, time.Time{}
	r.crew.drain()
	if r.f.stop != "" {
		r.hurry()
	}
	select {
	case <-r.crew.drained:
	case <-time.After(settleFor / 5):
		r.publish(nil)
	}
}

// hurry bounds the time for srun to read the tasks' output.
func (r *run) hurry() {
	if r.crew != nil && r.crew.drained != nil && !r.crew.hurried {
		r.crew.hurried = true
		time.AfterFunc(unheard, r.crew.wire.cut)
	}
}

// closeCrew tells srun of the end, which is on disk.
func (r *run) closeCrew(rec *pb.ExitRecord) {
	if r.crew != nil {
		r.crew.close(rec, r.f.failed != "")
	}
}

// bind restricts a process, with all its threads, to these CPUs.
func bind(pid int, cpus string) {
	list, err := hw.ParseList(cpus)
	if err != nil || len(list) == 0 {
		return
	}
	var set unix.CPUSet
	for _, cpu := range list {
		set.Set(cpu)
	}
	threads, _ := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
	for _, t := range threads {
		if tid, err := strconv.Atoi(t.Name()); err == nil {
			_ = unix.SchedSetaffinity(tid, &set)
		}
	}
}

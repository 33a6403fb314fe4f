package root

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-hpc/sluice/noded/agent"
	"github.com/sluice-hpc/sluice/noded/isolate"
	"github.com/sluice-hpc/sluice/noded/policy"
	"github.com/sluice-hpc/sluice/noded/privsep"
	"github.com/sluice-hpc/sluice/noded/step/folder"
	"github.com/sluice-hpc/sluice/noded/usage"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
)

// known is a step on this node, or one in preparation. Its fields are guarded by Root.mu.
type known struct {
	key      *pb.StepKey
	name     string
	rep      *pb.StepReport // newest; nil before the runner has the step
	brief    *pb.Bundle
	peak     usage.Peak
	finished bool // its devices were released
	recorded bool // the use of its devices is being recorded
	launches int  // launches under way
	stuck    bool // UnkillableStepProgram has run for it
	size     int  // its share of Root.knownBytes
}

// history returns the ends of attempts that were forgotten here.
func (r *Root) history(_ context.Context, o *nodepb.Request) (*nodepb.Answer, error) {
	ended, lost := r.past.above(o.GetHistory().Above)
	return &nodepb.Answer{Ended: ended, LostUpTo: lost.upTo, LostUntilNs: lost.until}, nil
}

// epilogued reports whether an epilog follows the end of a step. It still sees the step's devices.
func (r *Root) epilogued(k *known) bool {
	return r.settings.GetEpilog() != "" && !k.refused() && agent.KeyOf(k.key).Holder()
}

// refused reports whether the step never began here. It needs no epilog then.
func (k *known) refused() bool { return k.brief.GetCgroup() == "" }

// recover registers the steps that the runner found.
func (r *Root) recover(have []*pb.StepReport) {
	prior := r.loadUses()
	names := map[string]bool{}
	for _, rep := range have {
		k := &known{key: rep.Key, name: folder.Name(rep.Key), rep: rep, brief: &pb.Bundle{Key: rep.Key}}
		names[k.name] = true
		if b, err := r.steps.Bundle(rep.Key); err == nil {
			k.brief = privsep.Brief(b)
		} else {
			k.brief.Cgroup = folder.Group(rep.Key) // it may have run, so its epilog must run
		}
		key := agent.KeyOf(rep.Key)
		r.known[key] = k
		if rep.Phase == pb.StepPhase_STEP_ENDED && !r.epilogued(k) {
			k.finished = true
			continue
		}
		r.hold(k.name, k.brief.Devices)
		if rep.Phase != pb.StepPhase_STEP_ENDED {
			r.record(k, prior[key])
		}
	}
	for _, name := range r.hooks.Names() {
		if !names[name] {
			r.hooks.Forget(name)
		}
	}
}

// record starts to record the use of a step's devices, on top of what an earlier daemon recorded.
func (r *Root) record(k *known, prior []*pb.DeviceUse) {
	if len(k.brief.GetDevices()) > 0 && !k.refused() {
		k.recorded = true
		r.gpus.Recorder().Begin(k.name, k.brief.Devices, prior)
		r.gpus.Poke()
	}
}

// ended handles the end of a step, after the last sample of its devices.
func (r *Root) ended(rep *pb.StepReport) {
	r.mu.Lock()
	k := r.known[agent.KeyOf(rep.Key)]
	recorded := k != nil && k.recorded
	r.mu.Unlock()
	if !recorded {
		r.reported(rep)
		return
	}
	r.wg.Go(func() {
		r.gpus.Last(r.ctx, k.name)
		r.reported(rep)
	})
}

// reported handles a report of the runner.
func (r *Root) reported(rep *pb.StepReport) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := agent.KeyOf(rep.Key)
	k := r.known[key]
	if k == nil {
		return
	}
	if rep.Phase == pb.StepPhase_STEP_ENDED {
		if k.recorded {
			k.recorded = false
			rep = withDevices(rep, r.gpus.Recorder().End(k.name))
		} else if k.rep.GetPhase() == pb.StepPhase_STEP_ENDED {
			rep = k.rep // repeated
		}
		if !r.epilogued(k) {
			r.finish(k)
		}
	}
	k.rep = rep
	if r.conn != nil {
		r.conn.dirty[key] = true
		r.conn.out.Wake()
	}
}

// withDevices adds the use of devices to the report of an end.
func withDevices(rep *pb.StepReport, used []*pb.DeviceUse) *pb.StepReport {
	if len(used) == 0 || rep.Exit == nil {
		return rep
	}
	rep = proto.CloneOf(rep)
	if x := rep.Exit; x.Usage == nil {
		x.Usage = &pb.StepUsage{CpuUsecUser: x.CpuUsecUser, CpuUsecSystem: x.CpuUsecSystem, MaxRssKib: x.MaxRssKib}
	}
	rep.Exit.Usage.Devices = used
	return rep
}

// finish releases a step's devices. The caller holds r.mu.
func (r *Root) finish(k *known) {
	if k.finished {
		return
	}
	k.finished = true
	r.gpus.Release(k.name)
	if len(k.brief.GetDevices()) > 0 {
		r.showUsesLocked()
	}
}

// Limits for the steps that noded-link names. Real jobs are a few per processor, with some hundred bytes each.
const (
	maxKnown      = 16 << 10
	maxKnownBytes = 128 << 20
)

var errTooManySteps = errors.New("this node daemon has too many steps that were not forgotten yet")

// remember makes sure that a step is known. what is the part to keep: a Bundle, of which the brief is kept, or a request with
// devices.
func (r *Root) remember(key *pb.StepKey, what proto.Message) (*known, error) {
	b, _ := what.(*pb.Bundle)
	if b != nil {
		b = privsep.Brief(b)
		what = b
	}
	size := proto.Size(what)
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.known[agent.KeyOf(key)]
	if k == nil && len(r.known) >= maxKnown || r.knownBytes+size > maxKnownBytes {
		return nil, errTooManySteps
	}
	if k == nil {
		k = &known{key: key, name: folder.Name(key)}
		r.known[agent.KeyOf(key)] = k
	}
	if size > k.size {
		r.knownBytes += size - k.size
		k.size = size
	}
	if b != nil && k.rep == nil {
		k.brief = b
	}
	return k, nil
}

// remove makes a step unknown. The caller holds r.mu.
func (r *Root) remove(k *known) {
	if r.known[agent.KeyOf(k.key)] == k {
		delete(r.known, agent.KeyOf(k.key))
		r.knownBytes -= k.size
	}
}

// has notes that the runner has a step. Its first report comes later, when the noded-link that requested it may have gone.
func (r *Root) has(k *known, rep *pb.StepReport) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k.rep == nil {
		k.rep = rep
	}
}

// launching counts a step's launches under way.
func (r *Root) launching(k *known, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k.launches += n
}

// abandon forgets a step, unless the runner has it or is launching it.
func (r *Root) abandon(k *known) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k.rep != nil || k.launches > 0 {
		return
	}
	r.finish(k)
	if k.recorded {
		r.gpus.Recorder().End(k.name)
	}
	r.remove(k)
}

// leave abandons the steps that a departed noded-link had only prepared.
func (r *Root) leave(s *session) {
	r.mu.Lock()
	var left []*known
	if r.conn == s {
		r.conn = nil
	}
	for _, k := range r.known {
		if k.rep == nil {
			left = append(left, k)
		}
	}
	r.mu.Unlock()
	for _, k := range left {
		r.abandon(k)
	}
}

// launchable checks the form of a bundle: it is for one step, in that step's own cgroup.
func launchable(b *pb.Bundle) error {
	if b == nil {
		return errors.New("it has no bundle")
	}
	if len(b.GetLimits().GetDevices()) > 0 {
		return errors.New("it has device rules, which only noded-root may make")
	}
	if err := wellFormed(b.Key); err != nil {
		return err
	}
	if agent.KeyOf(b.Key).Holder() == (b.Step != nil) {
		return errors.New("only a step that srun has made has tasks")
	}
	if b.Step != nil && (b.HoldOnly || len(b.Step.Tasks) == 0) {
		return errors.New("it is a step without tasks")
	}
	return group(b, false)
}

// group checks that the cgroup's name follows from the step. With none, no cgroup is also valid.
func group(b *pb.Bundle, none bool) error {
	if want := folder.Group(b.GetKey()); b.GetCgroup() != want && !(none && b.GetCgroup() == "") {
		return fmt.Errorf("its cgroup is %q, and should be %q", b.GetCgroup(), want)
	}
	return nil
}

func (r *Root) launch(ctx context.Context, o *nodepb.Request) (*nodepb.Answer, error) {
	b := o.GetLaunch().Bundle
	if x := r.past.of(b.Key); x != nil {
		return &nodepb.Answer{Refused: true}, errors.New("this attempt has run on this node already")
	}
	if !b.HoldOnly {
		if err := r.judge.User(b.Uid, b.Gid, b.Groups); err != nil {
			return &nodepb.Answer{Refused: !errors.Is(err, policy.ErrLater)}, err
		}
	}
	for i, path := range b.TaskProlog {
		b.TaskProlog[i] = r.local(path)
	}
	b.TaskEpilog = r.local(b.TaskEpilog)
	if err := errors.Join(r.judge.Hold(b, hardLimit), r.own(b.Devices)); err != nil {
		return &nodepb.Answer{Refused: true}, err
	}
	if why := r.steps.Ready(); why != "" {
		return nil, errors.New(why)
	}
	r.closeDevices(b)
	r.containDevices(b)
	k, err := r.remember(b.Key, b)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	k.launches++
	if k.rep == nil && !k.recorded {
		r.hold(k.name, b.Devices)
		r.record(k, nil)
	}
	r.mu.Unlock()
	err = r.steps.Launch(ctx, b, o.GetLaunch().Script)
	if err == nil {
		r.has(k, &pb.StepReport{Key: b.Key, Phase: pb.StepPhase_STEP_PREPARING})
	}
	r.launching(k, -1)
	if err != nil {
		r.abandon(k)
		return nil, err
	}
	if len(b.Devices) > 0 {
		r.showUses()
	}
	return nil, nil
}

// hardLimit returns this daemon's own hard limit. Unlimited is the largest number.
func hardLimit(resource int) uint64 {
	var l unix.Rlimit
	if unix.Getrlimit(resource, &l) != nil {
		return unix.RLIM_INFINITY
	}
	return l.Max
}

// own checks that a step's devices are in this node's inventory. A job must not run without one that has gone.
func (r *Root) own(devices []*pb.GresDevice) error {
	have := r.gpus.Report().GetDevices()
	for _, d := range devices {
		if d.GetCount() == 0 && d.GetId() != "" && len(isolate.Held(have, []*pb.GresDevice{d})) == 0 {
			return fmt.Errorf("cannot give the job %s %d (%s): this node does not have it any more", d.GetName(), d.GetIndex(), d.GetId())
		}
	}
	return nil
}

// closeDevices sets the device rules of an allocation or step, by which it can open only its own devices. An allocation without a
// script needs them for the sessions that it may adopt.
func (r *Root) closeDevices(b *pb.Bundle) {
	r.mu.Lock()
	closes := r.settings.GetConstrainDevices() || r.judge.ClosesDevices()
	b.Privacy = r.privacy // not the request's own value
	r.mu.Unlock()
	if r.open != nil || !closes {
		return
	}
	rules, faults := isolate.Rules(isolate.Node{Devices: r.gpus.Report().GetDevices(), Spare: r.gpus.Spare(), Control: r.gpus.Control()},
		b.Devices, r.o.Kernel)
	for _, f := range faults {
		r.once("a device cannot be closed to jobs, nor used by any", f)
	}
	if b.Limits == nil {
		b.Limits = &pb.Limits{}
	}
	b.Limits.Devices = rules
}

// containDevices sets the devices of a container and ignores what the request says about them.
func (r *Root) containDevices(b *pb.Bundle) {
	if b.Container == nil {
		return
	}
	b.Container.Devices = nil
	for _, d := range isolate.Held(r.gpus.Report().GetDevices(), b.Devices) {
		b.Container.Devices = append(b.Container.Devices, &pb.ContainerDevice{Id: d.Id, Index: d.Index, Files: d.Files})
	}
}

func (r *Root) fail(_ context.Context, o *nodepb.Request) (*nodepb.Answer, error) {
	f := o.GetFail()
	if x := r.past.of(f.Exit.Key); x != nil { // the recorded end stands
		f.Exit = proto.CloneOf(x)
	} else if f.Exit.Verdict == pb.VerdictUnknown && r.past.forgotten(f.Exit.Key) {
		f.Exit.Verdict = pb.VerdictForgotten
		f.Exit.Detail = fmt.Sprintf("the controller's state was restored from a backup, and this node knows only what became of its "+
			"last %d jobs: the job has most likely ended here, and is not started again", mostPast)
	}
	b := privsep.Brief(f.Bundle) // drop the rest of the request, such as directories to delete
	k, err := r.remember(b.Key, b)
	if err != nil {
		return nil, err
	}
	if err := r.steps.Fail(b, f.Exit); err != nil {
		r.abandon(k)
		return nil, err
	}
	r.has(k, &pb.StepReport{Key: b.Key, Phase: pb.StepPhase_STEP_ENDED, Exit: f.Exit, StartNs: f.Exit.GetStartNs()})
	return nil, nil
}

func (r *Root) control(ctx context.Context, o *nodepb.Request) (*nodepb.Answer, error) {
	return nil, r.steps.Control(ctx, o.GetControl())
}

func (r *Root) forget(_ context.Context, o *nodepb.Request) (*nodepb.Answer, error) {
	key := agent.KeyOf(o.GetForget().Key)
	if x, job := r.exitOf(key); x != nil && key.Holder() {
		if err := r.past.add(x, job); err != nil {
			r.log.Error("cannot record the end of a job: a controller restored from a backup may ask for it",
				"err", err)
		}
	}
	if err := r.steps.Forget(o.GetForget().Key); err != nil {
		return nil, err
	}
	r.hooks.Forget(folder.Name(o.GetForget().Key))
	r.mu.Lock()
	defer r.mu.Unlock()
	if k := r.known[key]; k != nil {
		r.finish(k)
		r.remove(k)
	}
	return nil, nil
}

// exitOf returns how a known step ended, nil if it has not, and its job.
func (r *Root) exitOf(key agent.Key) (*pb.ExitRecord, *pb.StepJob) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k := r.known[key]; k != nil {
		return k.rep.GetExit(), k.brief.GetJob()
	}
	return nil, nil
}

// prepare gives a step its devices and partitions GPUs as the request needs.
func (r *Root) prepare(_ context.Context, o *nodepb.Request) (*nodepb.Answer, error) {
	p := o.GetPrepare()
	name := folder.Name(p.Key)
	k, err := r.remember(p.Key, p)
	if err != nil {
		return nil, err
	}
	modes := map[string]string{}
	for _, d := range r.gpus.Report().Devices {
		modes[d.Id] = d.MigMode
	}
	out := slices.Clone(p.Devices)
	for _, d := range out {
		var got *pb.Device
		var err error
		switch {
		case d.Parent != "":
			got, err = r.gpus.EnsureInstance(name, d.Parent, d.Type, d.MigStart)
		case modes[d.Id] == "on" || modes[d.Id] == "pending off":
			got, err = r.gpus.EnsureWhole(name, d.Id)
		default:
			continue
		}
		if err != nil {
			r.abandon(k)
			return nil, err
		}
		d.Id = got.Id
	}
	if err := r.own(out); err != nil {
		r.abandon(k)
		return nil, err
	}
	r.mu.Lock()
	r.hold(name, out)
	r.mu.Unlock()
	return &nodepb.Answer{Devices: out}, nil
}

// hold protects a step's devices from repartitioning while it runs.
func (r *Root) hold(name string, devices []*pb.GresDevice) {
	if len(devices) == 0 {
		return
	}
	var ids []string
	for _, d := range devices {
		ids = append(ids, d.Id)
	}
	r.gpus.Hold(name, ids)
}

package step

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/internal/version"
	"github.com/sluice-hpc/sluice/noded/step/folder"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Recover finds the steps of earlier node daemons: those that run under their shims, those that have ended, and those whose shim
// has died, which it ends. Call it once, before Launch. The order of its parts matters: see "Who owns a step".
func (r *Runner) Recover(ctx context.Context) ([]*pb.StepReport, error) {
	if err := r.withdrawAll(); err != nil {
		return nil, err
	}
	r.unprobe()
	reports, live, err := r.callShims(ctx)
	if err != nil {
		return nil, err
	}
	names, err := readNames(filepath.Join(r.o.Spool, folder.Steps))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if live[name] {
			continue
		}
		if rep := r.settle(name); rep != nil {
			reports = append(reports, rep)
		}
	}
	r.clearRun()
	r.wg.Add(1)
	go func() { defer r.wg.Done(); r.pool.housekeep(r.ctx) }()
	return reports, nil
}

// withdrawAll deletes launches that no shim has accepted: from here on no shim can accept an old launch.
func (r *Runner) withdrawAll() error {
	steps := filepath.Join(r.o.Spool, folder.Steps)
	names, err := readNames(steps)
	for _, n := range names {
		if !strings.HasPrefix(n, folder.New) && !strings.HasPrefix(n, folder.Free) {
			continue
		}
		if err := withdraw(filepath.Join(steps, n)); err != nil {
			return fmt.Errorf("cannot withdraw a launch: %w", err)
		}
	}
	return err
}

// withdrawn is the suffix of names that no shim accepts.
const withdrawn = ".w"

// withdraw renames a directory out of reach of a shim that may be accepting it right now, and then deletes it. Deleted in place,
// it could be accepted half empty.
func withdraw(dir string) error {
	if !strings.HasSuffix(dir, withdrawn) {
		if err := os.RemoveAll(dir + withdrawn); err != nil {
			return err
		}
		err := os.Rename(dir, dir+withdrawn)
		if errors.Is(err, os.ErrNotExist) {
			return nil // accepted
		}
		if err != nil {
			return err
		}
		dir += withdrawn
	}
	return os.RemoveAll(dir)
}

// callShims adopts each shim that answers; live holds the names of the running steps.
func (r *Runner) callShims(ctx context.Context) (reports []*pb.StepReport, live map[string]bool, err error) {
	live = map[string]bool{}
	names, err := readNames(r.pool.dir)
	for _, n := range names {
		pid, aerr := strconv.Atoi(n)
		if aerr != nil {
			_ = os.Remove(filepath.Join(r.pool.dir, n))
			continue
		}
		s, rep := r.call(ctx, pid)
		if s != nil {
			if verr := meets(version.Ours, rep); verr != nil {
				s.discard() // it keeps its running step and the record; without a running step it exits
				if rep.Key != nil && rep.Phase != pb.StepPhase_STEP_ENDED {
					err = errors.Join(err, verr)
				}
				continue
			}
			rep.Build = "" // reports below are about the step alone
		}
		switch {
		case s == nil:
		case rep.Key == nil || rep.Phase == pb.StepPhase_STEP_ENDED:
			r.pool.put(s) // an ended step is reported from its record
		default:
			live[folder.Name(rep.Key)] = true
			r.adopt(s, rep)
			reports = append(reports, rep)
		}
	}
	return reports, live, err
}

func (r *Runner) call(ctx context.Context, pid int) (*shim, *pb.StepReport) {
	s, err := r.pool.dial(pid)
	if err == nil {
		cctx, cancel := context.WithTimeout(ctx, r.o.AnswerTimeout)
		defer cancel()
		var rep *pb.StepReport
		if rep, err = s.api.Status(cctx, &pb.StatusRequest{}); err == nil {
			if s.other = r.pool.otherBuild(pid); s.other {
				r.log.Info("found a shim of another build: it ends its step and gets no more", "shim", pid, "step", folder.Name(rep.Key))
			}
			return s, rep
		}
		s.discard()
		r.log.Warn("a shim does not answer: killing it", "shim", pid, "err", err)
	}
	r.pool.kill(pid)
	return nil, nil
}

func (r *Runner) adopt(s *shim, rep *pb.StepReport) {
	e := &entry{key: rep.Key, name: folder.Name(rep.Key), shim: s}
	if b, err := r.readBundle(e.name); err == nil {
		e.cg = reclaimable(b)
	} else {
		r.log.Error("cannot read the bundle of a running step", "step", e.name, "err", err)
	}
	r.mu.Lock()
	r.steps[e.name] = e
	r.mu.Unlock()
	r.watch(e, s, rep)
}

// settle handles a step's directory without a live shim.
func (r *Runner) settle(name string) *pb.StepReport {
	key, err := folder.ParseName(name)
	if err != nil {
		r.log.Warn("ignoring an unknown directory in the spool", "name", name)
		return nil
	}
	b, err := r.readBundle(name)
	if err != nil {
		r.log.Error("cannot read a bundle: the step counts as lost", "step", name, "err", err)
		b = &pb.Bundle{Key: key} // without the epoch, which the name does not hold: the controller goes by job and attempt
		if r.o.Group != nil {
			b.Cgroup = r.o.Group(key)
		}
	}
	e := &entry{key: b.Key, name: name, cg: b}
	r.mu.Lock()
	r.steps[name] = e
	r.mu.Unlock()
	rep, err := r.bury(name, b, b.Key)
	if err != nil {
		// Processes survive: until they are gone the step is completing, not ended.
		rep = &pb.StepReport{Key: b.Key, Phase: pb.StepPhase_STEP_COMPLETING, Exit: &pb.ExitRecord{Key: b.Key, Detail: err.Error()}}
		r.report(e, rep)
		r.wg.Add(1)
		go func() { defer r.wg.Done(); r.lost(e) }()
		return rep
	}
	e.cg = reclaimable(b)
	r.report(e, rep)
	return rep
}

// readBundle refuses a bundle of another step. Bundles are not synced, so after a power cut one may be empty, torn, or, in a
// reused directory, that of an earlier step.
func (r *Runner) readBundle(name string) (*pb.Bundle, error) {
	b, err := folder.ReadBundle(r.dir(name))
	if err != nil {
		return nil, err
	}
	if of := folder.Name(b.Key); of != name {
		return nil, fmt.Errorf("cannot use the bundle in %s: it is of step %s", r.dir(name), of)
	}
	return b, nil
}

func readNames(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot read the spool: %w", err)
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("cannot read the spool: %w", err)
	}
	return names, nil
}

// meets refuses a step whose shim and this program do not understand each other. The shim keeps running and keeps the exit
// record, so nothing is lost if a node daemon follows that understands it, or comes after the step has ended.
func meets(ours version.Build, rep *pb.StepReport) error {
	const me = "this sluice-noded"
	a := ours.ApartFrom(me, fmt.Sprint("the shim of job ", rep.Key.GetJobId()), version.Parse(rep.Build))
	switch {
	case a == nil:
		return nil
	case a.Old == me:
		return fmt.Errorf("%w: start a newer one", a)
	}
	return fmt.Errorf("%w: start the earlier sluice-noded until the job has ended, or a release that knows both", a)
}

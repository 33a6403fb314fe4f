package state

import (
	"fmt"
	"slices"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// checkSteps verifies the steps of all jobs.
func (v *View) checkSteps() (faults []error) {
	for js := range v.steps.All() {
		if len(js.List) == 0 {
			continue
		}
		id := js.List[0].JobId
		if err := v.checkStepsOf(v.Jobs.Get(id), js); err != nil {
			faults = append(faults, fmt.Errorf("job %d: %w", id, err))
		}
	}
	return faults
}

func (v *View) checkStepsOf(j *pb.JobRecord, js *JobSteps) error {
	if j == nil || j.Attempt != js.Attempt {
		return fmt.Errorf("there are steps of attempt %d", js.Attempt)
	}
	free, running := map[string]*pb.NodeAlloc{}, 0
	for _, a := range j.Alloc {
		free[a.Node] = CloneAlloc(a)
	}
	var last uint32
	for i, s := range js.List {
		if i > 0 && s.StepId <= last {
			return fmt.Errorf("step %d comes after %d", s.StepId, last)
		}
		last = s.StepId
		if s.Attempt != j.Attempt || s.Epoch != j.Epoch {
			return fmt.Errorf("step %d is of attempt %d, epoch %d", s.StepId, s.Attempt, s.Epoch)
		}
		if !StepLive(s) {
			continue
		}
		running++
		if !slices.ContainsFunc(s.Nodes, func(n *pb.StepNode) bool { return !n.Ended }) {
			return fmt.Errorf("step %d is left on no node, and has not ended", s.StepId)
		}
		if err := takeStep(j, free, s); err != nil {
			return err
		}
	}
	if running != js.Running {
		return fmt.Errorf("%d steps are counted as running, there are %d", js.Running, running)
	}
	return nil
}

// takeStep subtracts a step's resources from its job's, unless the step shares them.
func takeStep(j *pb.JobRecord, free map[string]*pb.NodeAlloc, s *pb.StepRecord) error {
	shares := s.Spec.GetOverlap() || s.Spec.GetInteractive() || s.Spec.GetCopy()
	for _, n := range s.Nodes {
		if n.Ended {
			continue
		}
		a := free[n.Node]
		if shares {
			a = AllocOn(j, n.Node)
		}
		if a == nil || AllocOn(j, n.Node) == nil {
			return fmt.Errorf("step %d is on node %s, where the job is not", s.StepId, n.Node)
		}
		if n.Cpus > a.Cpus || n.MemMib > a.MemMib {
			return fmt.Errorf("step %d has %d CPUs and %d MiB of %s, others have left %d and %d", s.StepId, n.Cpus, n.MemMib, n.Node,
				a.Cpus, a.MemMib)
		}
		want, err1 := ParseCores(n.CpuIds)
		have, err2 := ParseCores(a.CpuIds)
		if err1 != nil || err2 != nil || want.Without(have).any() {
			return fmt.Errorf("step %d has the cores %s of %s, others have left %s", s.StepId, n.CpuIds, n.Node, a.CpuIds)
		}
		rest, ok := devicesWithout(a.Devices, n.Devices)
		if !ok {
			return fmt.Errorf("step %d has devices of %s that it cannot have", s.StepId, n.Node)
		}
		if !shares {
			a.Cpus, a.MemMib, a.CpuIds, a.Devices = a.Cpus-n.Cpus, a.MemMib-n.MemMib, have.Without(want).String(), rest
		}
	}
	return nil
}

// devicesWithout returns a list without the devices that a step holds; false: the list lacks some of them.
func devicesWithout(list, held []*pb.GresDevice) (rest []*pb.GresDevice, ok bool) {
	rest = slices.Clone(list)
	for _, h := range held {
		i := slices.IndexFunc(rest, func(d *pb.GresDevice) bool {
			return d.Name == h.Name && d.Type == h.Type && d.Index == h.Index && d.Id == h.Id && d.Parent == h.Parent &&
				d.Count >= h.Count && d.Share >= h.Share
		})
		if i < 0 {
			return nil, false
		}
		if d := rest[i]; d.Count > h.Count || d.Share > h.Share {
			c := pb.ShallowCopy(d)
			c.Count, c.Share = d.Count-h.Count, d.Share-h.Share
			rest[i] = c
		} else {
			rest = slices.Delete(rest, i, i+1)
		}
	}
	return rest, true
}
